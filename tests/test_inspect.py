from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from xla_cost.cli.app import run
from xla_cost.errors import XlaCostError
from xla_cost.inspect import hlo_files, inspect_path

DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"

MODEL = f"""HloModule model, num_partitions=8

add {{
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT s = bf16[] add(a, b)
}}

cheap {{
  p = bf16[64,32] parameter(0)
  ROOT n = bf16[64,32] negate(p)
}}

dear {{
  p = bf16[64,32] parameter(0)
  t = bf16[32,64] transpose(p), dimensions={{1,0}}
  d = bf16[64,64] dot(p, t), {DOT}
  ROOT r = bf16[64,32] dot(d, p), {DOT}
}}

cond {{
  p = (s32[], bf16[64,32], bf16[32,32]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  k = s32[] constant(7)
  ROOT c = pred[] compare(i, k), direction=LT
}}

body {{
  p = (s32[], bf16[64,32], bf16[32,32]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = bf16[64,32] get-tuple-element(p), index=1
  w = bf16[32,32] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  d = bf16[64,32] dot(x, w), {DOT}, metadata={{op_name="jit(f)/layer/mlp/dot_general"}}
  r = bf16[64,32] all-reduce(d), channel_id=1, replica_groups={{{{0,1,2,3}},{{4,5,6,7}}}},
    use_global_device_ids=true, to_apply=add, metadata={{op_name="jit(f)/layer/mlp/psum"}}
  ROOT t = (s32[], bf16[64,32], bf16[32,32]) tuple(j, r, w)
}}

ENTRY main {{
  x = bf16[64,32] parameter(0)
  w = bf16[32,32] parameter(1)
  b = s32[] parameter(2)
  z = s32[] constant(0)
  t = (s32[], bf16[64,32], bf16[32,32]) tuple(z, x, w)
  l = (s32[], bf16[64,32], bf16[32,32]) while(t), condition=cond, body=body
  y = bf16[64,32] get-tuple-element(l), index=1
  c = bf16[64,32] conditional(b, y, y), branch_computations={{cheap, dear}}
  q = f8e4m3fn[64,32] convert(c)
  v = f8e4m3fn[32,32] convert(w)
  ROOT g = (bf16[64,32], s8[100]) custom-call(q, v), custom_call_target="__cublas$lt$matmul$f8"
}}
"""

UNKNOWN = MODEL.replace("constant(7)", "parameter(1)").replace("__cublas$lt$matmul$f8", "mystery")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.hlo"
    path.write_text(MODEL, encoding="utf-8")
    return path


def only(path: Path) -> dict[str, Any]:
    (module,) = inspect_path(path)["modules"]
    return module  # type: ignore[no-any-return]


def test_the_fields_of_the_contract(model: Path) -> None:
    found = only(model)
    loop = 7 * 2 * 64 * 32 * 32
    branch = 2 * 64 * 64 * 32 + 2 * 64 * 32 * 64
    call = 2 * 64 * 32 * 32
    assert found["file"] == str(model)
    assert found["num_partitions"] == 8
    assert found["flops"] == loop + branch + call
    assert found["flops_min"] == loop + call
    assert found["flops_by_format"] == {"bf16": loop + branch, "fp8": call}
    assert found["flops_by_opcode"] == {"dot": loop + branch, "convolution": 0, "custom-call": call}
    assert found["loops"] == [{"name": "l", "trips": 7}]
    assert found["unknown_trip_counts"] == []
    assert found["unpriced"] == []
    assert found["unparsed_lines"] == 0
    assert found["coverage"] == 1.0
    (row,) = found["collectives"]
    assert row == {
        "kind": "all-reduce",
        "group_size": 4,
        "groups": 2,
        "payload_bytes": 64 * 32 * 2,
        "result_bytes": 64 * 32 * 2,
        "executions": 7,
        "scope": "layer/mlp",
        "format": "bf16",
        "name": "r",
        "source": "",
    }


def test_what_is_not_understood_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "u.hlo"
    path.write_text(UNKNOWN, encoding="utf-8")
    found = only(path)
    assert found["unknown_trip_counts"] == ["l"]
    assert found["loops"] == [{"name": "l", "trips": None}]
    (row,) = found["unpriced"]
    assert row["note"].startswith("custom call mystery has no rule: reads 3072 bytes")
    assert row["bytes"] == 64 * 32 + 32 * 32 + 64 * 32 * 2
    assert found["coverage"] < 1.0
    assert found["flops_by_opcode"]["dot"] == (2 * 64 * 32 * 32) + 2 * (2 * 64 * 64 * 32)


def test_an_all_reduce_that_becomes_a_reduce_scatter_is_called_what_the_text_says(
    tmp_path: Path,
) -> None:
    text = """HloModule m, num_partitions=4

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  x = f32[64] parameter(0)
  a = f32[64] all-reduce(x), channel_id=1, replica_groups=[1,4]<=[4],
    use_global_device_ids=true, to_apply=add
  i = u32[] partition-id()
  t = s32[4] constant({0,16,32,48})
  o = s32[1] dynamic-slice(t, i), dynamic_slice_sizes={1}
  r = s32[] reshape(o)
  ROOT s = f32[16] dynamic-slice(a, r), dynamic_slice_sizes={16}
}
"""
    path = tmp_path / "m.txt"
    path.write_text(text, encoding="utf-8")
    (row,) = only(path)["collectives"]
    assert (row["kind"], row["priced_as"]) == ("all-reduce", "reduce-scatter")


def test_a_cut_file_lists_its_computations(tmp_path: Path) -> None:
    path = tmp_path / "cut.hlo"
    path.write_text(
        MODEL[: MODEL.index("ENTRY")] + "orphan {\n  p = f32[8] param", encoding="utf-8"
    )
    found = only(path)
    rows = {row["name"]: row["flops"] for row in found["computations"]}
    assert rows == {"dear": 2 * (2 * 64 * 64 * 32), "body": 2 * 64 * 32 * 32}
    assert found["flops"] == sum(rows.values())
    assert any("ends inside" in warning for warning in found["warnings"])


def test_a_folder_gives_what_it_can_and_says_what_failed(tmp_path: Path, model: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "two.txt").write_text(MODEL + "\n// -----\n" + MODEL, encoding="utf-8")
    (tmp_path / "empty.hlo").write_text("", encoding="utf-8")
    bad = MODEL.replace("{{0,1,2,3},{4,5,6,7}}", "[2,2]<=[16]")
    (tmp_path / "bad.hlo").write_text(bad, encoding="utf-8")
    (tmp_path / "notes.md").write_text("no HLO", encoding="utf-8")
    found = inspect_path(tmp_path)
    assert sorted(Path(m["file"]).name for m in found["modules"]) == [
        "model.hlo", "two.txt", "two.txt",
    ]  # fmt: skip
    failed = {Path(row["file"]).name: row["error"] for row in found["failed"]}
    assert failed.keys() == {"bad.hlo", "empty.hlo"}
    assert "expected HLO text" in failed["empty.hlo"]
    assert "[2,2]<=[16]" in failed["bad.hlo"]
    assert str(tmp_path) not in "".join(failed.values())  # the file is named once


def test_a_place_without_hlo_is_refused(tmp_path: Path) -> None:
    with pytest.raises(XlaCostError, match="no such file or folder"):
        hlo_files(tmp_path / "nothing")
    with pytest.raises(XlaCostError, match="holds no"):
        hlo_files(tmp_path)


# the command


def test_the_command_prints_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(model), "--json", "-"]) == 0
    out = capsys.readouterr()
    data = json.loads(out.out)
    provenance = data.pop("provenance")
    assert provenance["command"] == ["xla-cost", "inspect", str(model), "--json", "-"]
    assert data == inspect_path(model)
    assert data["failed"] == []


def test_the_tables_fit_eighty_columns(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", str(model)]) == 0
    one = capsys.readouterr().out
    assert "GFLOP" not in one
    assert "MFLOP" in one
    assert "all-reduce bf16" in one
    assert "l x 7" in one
    (tmp_path / "a_second_module_with_a_rather_long_name.hlo").write_text(MODEL, encoding="utf-8")
    assert run(["inspect", str(tmp_path)]) == 0
    many = capsys.readouterr().out
    assert "model.hlo" in many
    assert max(len(line) for line in (one + many).splitlines()) <= 80


def test_strict_fails_on_what_is_not_understood(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", str(model), "--strict"]) == 0
    path = tmp_path / "u.hlo"
    path.write_text(UNKNOWN, encoding="utf-8")
    assert run(["inspect", str(path)]) == 0
    assert run(["inspect", str(path), "--strict"]) == 1
    assert "custom call mystery has no rule" in " ".join(capsys.readouterr().out.split())


def test_with_a_machine_it_is_priced(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(model), "--machine", "h100", "--json", "-"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["modules"]
    assert found["price"]["machine"] == "h100"
    assert found["price"]["latency_s"] > 0
    assert run(["inspect", str(model), "--machine", "h100"]) == 0
    assert "on h100:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"), [(None, "no such file"), ("", "found nothing"), ("Hello", "no HLO")]
)
def test_bad_input_is_one_line_and_exit_2(
    text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.hlo"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert run(["inspect", str(path)]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert message in out.err
    assert out.err.count("\n") == 1


def test_standard_input_is_read(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    given(MODEL.encode())
    assert run(["inspect", "-", "--json", "-", "--machine", "h100"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["modules"]
    (same,) = inspect_path(model)["modules"]
    assert found.pop("file") == "standard input"
    assert found.pop("price")["latency_s"] > 0
    same.pop("file")
    assert found == same
    given(b"")
    assert run(["inspect", "-"]) == 2
    assert capsys.readouterr().err == (
        "xla-cost: standard input: found nothing, expected HLO text\n"
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--policy", "foo"), "policy 'foo' is unknown"),
        (("--policy", "foo", "--machine", "h100"), "policy 'foo' is unknown"),
        (("--policy", "study"), "--policy study: only with --machine; nothing is priced here"),
        (("--machine", "nowhere"), "nowhere"),
    ],
)
@pytest.mark.parametrize("folder", [False, True])
def test_what_would_price_is_checked_before_anything_is_read(
    more: tuple[str, ...], said: str, folder: bool, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", str(model.parent if folder else model), *more]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert said in out.err


def test_inspecting_imports_neither_jax_nor_numpy(model: Path) -> None:
    code = (
        "import sys\n"
        "from xla_cost.cli.app import run\n"
        f"assert run(['inspect', {str(model)!r}]) == 0\n"
        "print(sorted({'jax', 'jaxlib', 'numpy', 'flax'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


UNPARTITIONED = """
HloModule m, num_partitions=2

ENTRY e {
  a = f32[8,16]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}
  b = f32[16,4]{1,0} parameter(1)
  d = f32[8,4]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0} SHARDING
  ROOT n = f32[8,4]{1,0} negate(d)
}
"""


SDY = """
HloModule m, num_partitions=PARTS, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["d"=PARTS]>}}

ENTRY e {
  a = f32[8,16]{1,0} parameter(0), sharding={devices=[PARTS,1]<=[PARTS]}
  b = f32[16,4]{1,0} parameter(1), sharding={replicated}
  ROOT d = f32[8,4]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""  # noqa: E501
HEADER = ", frontend_attributes={xla.sdy.meshes="
DEVICES = {
    "on an instruction": (UNPARTITIONED.replace(" SHARDING", ", sharding={devices=[2,1]<=[2]}"), 2),
    "parameters alone": (UNPARTITIONED.replace(" SHARDING", ""), 0),
    "shardy": (SDY.replace("PARTS", "8"), 8),
    "shardy on one device": (SDY.replace("PARTS", "1"), 0),
    "shardy's attribute": (
        SDY.replace(HEADER, ", x={").replace(
            "[PARTS]}\n", '[PARTS]}, frontend_attributes={xla.sdy.sharding="<@m, [{}]>"}\n'
        ).replace("PARTS", "8"), 8,
    ),
    "a computation that had a manual section": (
        UNPARTITIONED.replace(" SHARDING", "").replace(
            "ROOT n = f32[8,4]{1,0} negate(d)",
            "ROOT n = f32[8,4]{1,0} call(d), to_apply=%xla.sdy.inlinable_manual_computation_body",
        ) + "%xla.sdy.inlinable_manual_computation_body {\n  ROOT p = f32[8,4] parameter(0)\n}\n",
        0,
    ),
    "scheduled": (SDY.replace("PARTS", "8").replace("m, num", "m, is_scheduled=true, num"), 0),
    "one device asked for": (
        SDY[: SDY.index(", num")] + SDY[SDY.index("\n\nENTRY") :].replace("PARTS", "1").replace(
            "ROOT d = f32[8,4]{1,0} dot(a, b)",
            'c = f32[8,16] custom-call(a), custom_call_target="Sharding", sharding={replicated}\n'
            "  ROOT d = f32[8,4]{1,0} dot(c, b)",
        ), 0,
    ),
    "a named mesh": (
        UNPARTITIONED.replace(" SHARDING", ", sharding={mesh['x'=2], [{'x'}, {}]}")
        .replace(", num_partitions=2", ""), 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEVICES)
def test_a_module_before_partitioning_is_said_to_be_and_fails_strict(name, tmp_path, capsys):
    text, devices = DEVICES[name]
    path = tmp_path / "m.hlo"
    path.write_text(text)
    module = inspect_path(path)["modules"][0]
    assert module["flops"] == 2 * 8 * 16 * 4
    assert module["partitioned"] is (devices == 0)
    said = [w for w in module["warnings"] if w.startswith("HLO before partitioning")]
    assert [f"annotations for {devices} devices" in w for w in said] == [True] * bool(devices)
    assert run(["inspect", str(path), "--strict"]) == bool(devices)
    assert ("whole program" in capsys.readouterr().out) is bool(devices)


def test_in_a_folder_text_before_partitioning_has_a_star(tmp_path, capsys):
    for name in ("shardy", "parameters alone"):
        (tmp_path / f"{name}.hlo").write_text(DEVICES[name][0])
    assert run(["inspect", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "8*" in shown
    assert "2*" not in shown
    assert "*: before partitioning" in shown


def test_strict_refuses_text_that_is_cut(tmp_path, capsys):
    path = tmp_path / "m.hlo"
    path.write_text(UNPARTITIONED.replace(" SHARDING", "").strip().removesuffix("}"))
    assert inspect_path(path)["modules"][0]["complete"] is False
    assert run(["inspect", str(path)]) == 0
    assert run(["inspect", str(path), "--strict"]) == 1
    assert run(["check", str(path), "--lock", str(tmp_path / "m.lock"), "--update"]) == 2
    assert "m.hlo: the text ends inside e; expected a whole module" in capsys.readouterr().err
