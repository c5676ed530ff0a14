"""Trace files: the public formats, and errors that name line, value and what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from xla_cost.errors import XlaCostError
from xla_cost.serving.trace import read_trace


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_azure_csv(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
    )
    rows = read_trace(write(tmp_path, "azure.csv", text)).rows
    assert [(r.input_tokens, r.output_tokens) for r in rows] == [(374, 44), (396, 109)]
    assert rows[0].arrival_s == 0.0
    # microseconds: the seventh digit is dropped
    assert rows[1].arrival_s == pytest.approx(50.995169 - 46.680590, abs=1e-6)


def test_mooncake_jsonl_with_its_prefix_cache(tmp_path: Path) -> None:
    text = (
        '{"timestamp": 1000, "input_length": 1500, "output_length": 5, "hash_ids": [1, 2, 3]}\n'
        '{"timestamp": 1250, "input_length": 1100, "output_length": 9, "hash_ids": [1, 2, 7]}\n'
        '{"timestamp": 4000, "input_length": 900, "output_length": 1, "hash_ids": [8, 2]}\n'
        '{"timestamp": 4000, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}\n'
    )
    path = write(tmp_path, "mooncake.jsonl", text)
    rows = read_trace(path, None).rows
    assert [r.arrival_s for r in rows] == [0.0, 0.25, 3.0, 3.0]
    # two blocks of 512 found; then none, as only leading blocks count; then all 600 tokens
    assert [r.cached for r in rows] == [0, 1024, 0, 600]
    assert [r.cached for r in read_trace(path).rows] == [0, 0, 0, 0]
    # room for two blocks: 2, 3 after the first, 2, 7 after the second, 8, 2 after the third
    assert [r.cached for r in read_trace(path, 1024).rows] == [0, 0, 0, 0]


def test_plain_formats(tmp_path: Path) -> None:
    csv = write(tmp_path, "a.csv", "arrival_s,input_tokens,output_tokens\n1.5,10,3\n2,20,1\n")
    jsonl = write(
        tmp_path,
        "a.jsonl",
        '{"arrival_s": 1.5, "input_tokens": 10, "output_tokens": 3}\n\n'
        '{"arrival_s": 2, "input_tokens": 20, "output_tokens": 1}\n',
    )
    assert read_trace(csv) == read_trace(jsonl)
    assert read_trace(csv).rows[1].arrival_s == 0.5


HEAD = "arrival_s,input_tokens,output_tokens\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", HEAD + "1,10,3\n0.5,10,3\n", r"a\.csv:3: arrival_s = '0.5'; must not be before"),
        (
            "a.csv",
            HEAD + "1,ten,3\n",
            r"a\.csv:2: input_tokens = 'ten'; expected a number in 0 \.\. 1e15",
        ),
        ("a.csv", HEAD + "1,10,0\n", r"a\.csv:2: output_tokens = '0'; expected a whole number"),
        ("a.csv", HEAD + "1,10.5,3\n", r"input_tokens = '10.5'; expected a whole number >= 1"),
        ("a.csv", HEAD + "nan,10,3\n", r"arrival_s = 'nan'; expected a number in 0 \.\. 1e15"),
        ("a.csv", HEAD + "1,10\n", r"a\.csv:2: 2 fields; expected 3"),
        ("a.csv", HEAD + "1,10,3,4\n", r"a\.csv:2: .* fields; expected 3"),
        ("a.csv", "time,tokens\n1,2\n", r"a\.csv:1: fields \['time', 'tokens'\]; expected arrival"),
        ("a.csv", "1,10,3\n2,10,3\n", r"a\.csv:1: fields \['1', '10', '3'\]; expected arrival_s"),
        ("a.csv", "arrival_s,input_tokens\n1,10\n", r"a\.csv:1: fields \['arrival_s', 'input_"),
        (
            "a.csv",
            HEAD + "inf,1,1\n",
            r"a\.csv:2: arrival_s = 'inf'; expected a number in 0 \.\. 1e15",
        ),
        ("a.csv", HEAD + "1,1e30,1\n", r"a\.csv:2: input_tokens = '1e30'; expected a number in 0"),
        ("a.csv", HEAD, r"a\.csv: no requests; expected at least one"),
        ("a.jsonl", "{nope\n", r"a\.jsonl:1: '\{nope'; expected a JSON object"),
        ("a.jsonl", "[1]\n", r"a\.jsonl:1: '\[1\]'; expected a JSON object"),
        (
            "a.jsonl",
            '{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": ["x"]}\n',
            r"a\.jsonl:1: hash_ids = \['x'\]; expected a list of integers",
        ),
        (
            "a.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n",
            r"a\.csv:2: TIMESTAMP = 'yesterday'; expected a date such as",
        ),
    ],
)
def test_errors_name_line_value_and_expectation(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(XlaCostError, match=message):
        read_trace(write(tmp_path, name, text))


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        XlaCostError, match=r"none\.csv: cannot be read \(No such file or directory\)"
    ):
        read_trace(tmp_path / "none.csv")


def test_a_binary_file_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(HEAD.encode() + b"\xff\xfe")
    with pytest.raises(XlaCostError) as refusal:
        read_trace(path)
    assert (
        str(refusal.value) == f"trace {path}: byte {len(HEAD)} is not UTF-8; expected a text file"
    )
