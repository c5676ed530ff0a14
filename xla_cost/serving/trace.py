"""Request traces in the public formats, read strictly.

Azure (github.com/Azure/AzurePublicDataset, AzureLLMInferenceTrace): CSV with the columns
TIMESTAMP, ContextTokens, GeneratedTokens; timestamps are dates. Mooncake
(github.com/kvcache-ai/Mooncake, arXiv 2407.00079): JSON lines with timestamp in milliseconds,
input_length, output_length and hash_ids, one per block of 512 prompt tokens, equal where the
prefix is equal. Also a plain CSV or JSONL with arrival_s, input_tokens, output_tokens.
"""

from __future__ import annotations

import csv
import io
import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from xla_cost.errors import XlaCostError

#: Tokens per hash id in Mooncake traces.
BLOCK_TOKENS = 512

Fields = tuple[str, str, str]
_PLAIN: Fields = ("arrival_s", "input_tokens", "output_tokens")
_AZURE: Fields = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_MOONCAKE: Fields = ("timestamp", "input_length", "output_length")


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request; `arrival_s` counts from the first one, `cached` from a prefix cache."""

    arrival_s: float
    input_tokens: int
    output_tokens: int
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival."""

    rows: tuple[TraceRow, ...]


def read_trace(path: str | Path, cache_tokens: int | None = 0) -> Trace:
    """The trace in `path` (.csv, or .jsonl / .json with one object a line).

    `cache_tokens`: size of a prefix cache shared by all workers that `hash_ids` are looked up
    in, least recently used blocks dropped first; 0 for none, None without limit.
    Raises XlaCostError naming file, line, value and what was expected.
    """
    name = Path(path).name
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise XlaCostError(f"trace {path}: cannot be read ({reason})") from error
    except UnicodeDecodeError as error:
        raise XlaCostError(
            f"trace {path}: byte {error.start} is not UTF-8; expected a text file"
        ) from error
    records = _csv(name, text) if name.lower().endswith(".csv") else _jsonl(name, text)
    rows = list(_rows(records, _PrefixCache(cache_tokens)))
    if not rows:
        raise XlaCostError(f"trace {name}: no requests; expected at least one")
    first = rows[0].arrival_s
    return Trace(
        tuple(
            TraceRow(row.arrival_s - first, row.input_tokens, row.output_tokens, row.cached)
            for row in rows
        )
    )


Record = tuple[str, Mapping[str, Any]]


def _csv(name: str, text: str) -> Iterator[Record]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        if reader.fieldnames:
            _format_of(f"{name}:1", dict.fromkeys(reader.fieldnames))
        for row in reader:
            where = f"{name}:{reader.line_num}"
            if None in row or None in row.values():
                raise XlaCostError(
                    f"{where}: {len([v for v in row.values() if v is not None])} fields; "
                    f"expected {len(reader.fieldnames or ())}"
                )
            yield where, row
    except csv.Error as error:
        raise XlaCostError(f"{name}:{reader.line_num}: {error}; expected CSV") from error


def _jsonl(name: str, text: str) -> Iterator[Record]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise XlaCostError(f"{where}: {line[:60]!r}; expected a JSON object") from error
        if not isinstance(value, dict):
            raise XlaCostError(f"{where}: {line[:60]!r}; expected a JSON object")
        yield where, value


def _rows(records: Iterator[Record], cache: _PrefixCache) -> Iterator[TraceRow]:
    before = float("-inf")
    for where, record in records:
        fields = _format_of(where, record)
        arrival = _ARRIVAL[fields](where, record[fields[0]])
        if arrival < before:
            raise XlaCostError(
                f"{where}: {fields[0]} = {record[fields[0]]!r}; "
                "must not be before that of the line above"
            )
        before = arrival
        prompt, answer = (_count(where, name, record[name]) for name in fields[1:])
        cached = cache.look_up(_hash_ids(where, record), prompt)
        yield TraceRow(arrival, prompt, answer, cached)


def _format_of(where: str, record: Mapping[str, Any]) -> Fields:
    for fields in (_PLAIN, _AZURE, _MOONCAKE):
        if all(name in record for name in fields):
            return fields
    raise XlaCostError(
        f"{where}: fields {sorted(map(str, record))}; expected "
        + " or ".join(", ".join(fields) for fields in (_PLAIN, _AZURE, _MOONCAKE))
    )


def _number(where: str, name: str, value: Any) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else float("nan")
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not 0 <= number < 1e15:
        raise XlaCostError(f"{where}: {name} = {value!r}; expected a number in 0 .. 1e15")
    return number


def _count(where: str, name: str, value: Any) -> int:
    number = _number(where, name, value)
    if number != int(number) or number < 1:
        raise XlaCostError(f"{where}: {name} = {value!r}; expected a whole number >= 1")
    return int(number)


def _date_s(where: str, value: Any) -> float:
    text = str(value).strip()
    if "." in text:  # Azure prints seven digits of a second, Python reads six
        head, _, tail = text.partition(".")
        digits = len(tail) - len(tail.lstrip("0123456789"))
        text = f"{head}.{tail[: min(digits, 6)]}{tail[digits:]}"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise XlaCostError(
            f"{where}: TIMESTAMP = {value!r}; expected a date such as 2023-11-16 18:15:46.6805900"
        ) from error
    return (moment.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()


_ARRIVAL: dict[Fields, Callable[[str, Any], float]] = {
    _PLAIN: lambda where, value: _number(where, "arrival_s", value),
    _AZURE: _date_s,
    _MOONCAKE: lambda where, value: _number(where, "timestamp", value) / 1000,
}


def _hash_ids(where: str, record: Mapping[str, Any]) -> list[int]:
    ids = record.get("hash_ids", [])
    if not isinstance(ids, list) or any(isinstance(i, bool) or not isinstance(i, int) for i in ids):
        raise XlaCostError(f"{where}: hash_ids = {str(ids)[:60]}; expected a list of integers")
    return ids


class _PrefixCache:
    """Blocks of prompts seen before, the least recently used dropped when full."""

    def __init__(self, tokens: int | None) -> None:
        self._most = None if tokens is None else tokens // BLOCK_TOKENS
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def look_up(self, ids: list[int], prompt: int) -> int:
        """Prompt tokens found (whole leading blocks); all of `ids` are then in the cache."""
        if self._most == 0:
            return 0
        hits = 0
        while hits < len(ids) and ids[hits] in self._blocks:
            hits += 1
        for block in ids:
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while self._most is not None and len(self._blocks) > self._most:
            self._blocks.popitem(last=False)
        return min(hits * BLOCK_TOKENS, prompt)
