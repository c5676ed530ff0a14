"""What XLA writes on standard error while it partitions becomes findings with the user's line."""

import inspect
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from xla_cost.lowering import ensure_devices, partition
from xla_cost.lowering.compiler_warnings import parse_warnings
from xla_cost.lowering.stderr import captured_stderr, reemit


def mesh_4x2():
    return jax.make_mesh(
        (4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2, devices=ensure_devices(8)[:8]
    )


def resharded(x, w):
    h = jax.lax.with_sharding_constraint(x @ w, P("x", None, "y"))
    with jax.named_scope("block"):
        h = jnp.tanh(h.reshape(8, 16, 16, 32))
        h = jax.lax.with_sharding_constraint(h, P(("x", "y")))
        return jax.lax.with_sharding_constraint(h, P(None, "y", None, "x"))  # the mistake


def test_involuntary_full_rematerialization_names_op_line_bytes_and_cure(capfd):
    x = jax.ShapeDtypeStruct((8, 16, 256), jnp.bfloat16)
    w = jax.ShapeDtypeStruct((256, 512), jnp.bfloat16)
    hlo = partition(resharded, (x, w), mesh=mesh_4x2(), in_shardings=(P("x"), P(None, "y")))

    (warning,) = hlo.warnings
    lines, first = inspect.getsourcelines(resharded)
    # XLA complains about the value before the constraint that it cannot reach efficiently
    blamed = next(n for n, line in enumerate(lines) if 'P(("x", "y"))' in line)
    assert warning.kind == "involuntary-full-rematerialization"
    assert warning.op_name == "jit(resharded)/block/sharding_constraint"
    assert warning.source == f"{__file__}:{first + blamed}"
    assert warning.bytes == 8 * 16 * 16 * 32 * 2  # the whole tensor, on every device
    assert "{devices=[8,1,1,1]<=[8]} to {devices=[1,2,1,4]" in warning.cure
    assert "with_sharding_constraint" in warning.cure
    assert warning.text.startswith("[SPMD] Involuntary full rematerialization.")
    assert capfd.readouterr().err == ""  # understood, so not shown twice
    assert str(warning).startswith(
        "involuntary-full-rematerialization: jit(resharded)/block/sharding_constraint at "
    )


def test_warnings_are_the_same_every_time():
    x = jax.ShapeDtypeStruct((8, 16, 256), jnp.bfloat16)
    w = jax.ShapeDtypeStruct((256, 512), jnp.bfloat16)
    found = [
        partition(resharded, (x, w), mesh=mesh_4x2(), in_shardings=(P("x"), P(None, "y")))
        for _ in range(2)
    ]
    assert found[0].warnings == found[1].warnings


PREFIX = "W1130 21:55:02.612033   16655 spmd_partitioner.cc:656] "
MESSAGE = (
    "[SPMD] Involuntary full rematerialization. The compiler cannot go from sharding "
    "{devices=[1,8,1]<=[8]} to {devices=[4,1,2]<=[8]} efficiently for HLO operation "
    "%copy.1 = bf16[16,1,64]{2,1,0} copy(%reshape), sharding={devices=[1,8,1]<=[8]}, metadata={"
)
TABLES = """HloModule m

FileNames
1 "/home/u/model.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=36 end_line=36 column=6 end_column=6}

StackFrames
5 {file_location_id=1 parent_frame_id=5}

ENTRY %main {
"""


@pytest.mark.parametrize(
    ("metadata", "source"),
    [
        ('op_name="jit(f)/a" stack_frame_id=5}.', "/home/u/model.py:36"),
        ('op_name="jit(f)/a" stack_frame_id=6}.', ""),
        ('op_name="jit(f)/a" source_file="/home/u/old.py" source_line=7}.', "/home/u/old.py:7"),
        ("}.", ""),
    ],
)
def test_source_lines_from_either_form_of_metadata(metadata, source):
    line = PREFIX + MESSAGE + metadata
    (warning,), rest = parse_warnings([line, line.replace("16655", "16656")], TABLES)
    assert rest == []
    assert warning.source == source
    assert warning.hlo_name == "copy.1"
    assert warning.bytes == (16 * 1 * 64) * 8 * 2  # one part of 8, two bytes each


@pytest.mark.parametrize(
    ("tiling", "parts"),
    [
        ("{devices=[1,8,1]<=[8]}", 8),
        ("{devices=[1,4,1,2]<=[8] last_tile_dim_replicate}", 4),
        ("{devices=[2,4,1]<=[2,4]T(1,0)}", 8),
        ("{devices=[1,2,1]0,1}", 2),
        ("{replicated}", 1),
    ],
)
def test_bytes_are_those_of_the_whole_tensor(tiling, parts):
    line = PREFIX + MESSAGE.replace("sharding={devices=[1,8,1]<=[8]}", f"sharding={tiling}") + "}"
    (warning,), _ = parse_warnings([line], "")
    assert warning.bytes == 16 * 1 * 64 * 2 * parts


def test_what_nobody_recognises_is_given_back():
    lines = [
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "W1130 21:55:02.612033   16655 cpu_compiler.cc:1] something new",
    ]
    assert parse_warnings(lines, "") == ((), [lines[1]])


def test_hidden_warnings_are_said(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    (warning,), _ = parse_warnings([], "")
    assert warning.kind == "warnings-hidden"
    assert warning.text == "TF_CPP_MIN_LOG_LEVEL=3 hides XLA's warnings"


def test_the_capture_catches_the_descriptor_and_gives_it_back(capfd):
    with captured_stderr() as captured:
        os.write(2, b"from C\n\nand more")
    assert captured.lines == ["from C", "and more"]
    assert capfd.readouterr().err == ""
    reemit(captured.lines)
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "from C\nand more\nafter\n"


def test_the_capture_ends_with_an_error_too(capfd):
    with pytest.raises(KeyError), captured_stderr():
        raise KeyError
    os.write(2, b"visible\n")
    assert capfd.readouterr().err == "visible\n"


def test_a_fatal_message_is_passed_on_before_the_process_ends():
    script = (
        "import os, time\n"
        "from xla_cost.lowering.stderr import captured_stderr\n"
        "with captured_stderr():\n"
        "    os.write(2, b'harmless\\n')\n"
        "    os.write(2, b'F1130 21:55:02.612033 1 shape.cc:7] Check failed: x\\n')\n"
        "    time.sleep(0.5)\n"
        "    os.abort()\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler=0", "-c", script], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "Check failed: x" in done.stderr


def test_a_closed_standard_error_is_no_obstacle():
    script = (
        "import os\n"
        "os.close(2)\n"
        "import jax, jax.numpy as jnp\n"
        "from xla_cost.lowering import partition\n"
        "hlo = partition(lambda x: x @ x, (jax.ShapeDtypeStruct((8, 8), jnp.float32),))\n"
        "print(hlo.devices, ' dot(' in hlo.text)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert done.stdout == "1 True\n"
