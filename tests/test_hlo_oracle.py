"""XLA's own text parser and ours say the same of our modules."""

import pytest
from hlo_proto import OracleInstruction, oracle_computations, oracle_proto
from hlo_texts import ORACLE

from xla_cost.hlo import Instruction, Module, dims, parse
from xla_cost.hlo.groups import collective_groups

#: Numbers of `PrimitiveType` in xla_data.proto for the types our texts use.
TYPES = {
    "pred": 1, "s8": 2, "s32": 4, "u8": 6, "f32": 11, "bf16": 16, "token": 17, "f8e4m3fn": 20,
    "s4": 21,
}  # fmt: skip


def pairs(name: str) -> list[tuple[Module, Instruction, OracleInstruction]]:
    """Our reading beside XLA's, instruction by instruction."""
    data = oracle_proto(ORACLE[name])
    if data is None:
        pytest.skip("this jaxlib has no HLO text parser")
    theirs = oracle_computations(data)
    (module,) = parse(ORACLE[name])
    found = []
    for computation, instructions in theirs.items():
        # XLA names a nested computation `_`, we name it after its caller
        known = computation if computation in module.computations else "m.to_apply"
        ours = sorted(module.computations[known].instructions, key=lambda i: i.line)
        by_opcode = sorted(instructions, key=lambda i: i.opcode)
        for our, their in zip(sorted(ours, key=lambda i: i.opcode), by_opcode, strict=True):
            found.append((module, our, their))
    return found


def matched(name: str) -> list[tuple[Module, Instruction, OracleInstruction]]:
    """Those that bear the same name in both readings (XLA renames doubles)."""
    data = oracle_proto(ORACLE[name])
    if data is None:
        pytest.skip("this jaxlib has no HLO text parser")
    (module,) = parse(ORACLE[name])
    theirs = oracle_computations(data)
    return [
        (module, computation.by_name[their.name], their)
        for name, computation in module.computations.items()
        for their in theirs.get(name, [])
        if their.name in computation.by_name
    ]


@pytest.mark.parametrize("name", ORACLE)
def test_same_computations_and_opcodes(name: str) -> None:
    rows = pairs(name)
    assert rows
    for _, ours, theirs in rows:
        assert ours.opcode == theirs.opcode


@pytest.mark.parametrize("name", ORACLE)
def test_same_types(name: str) -> None:
    rows = matched(name)
    assert len(rows) > 1
    for _, ours, theirs in rows:
        assert [(TYPES[a.dtype], a.dims) for a in ours.shape.arrays] == theirs.arrays, ours.name


def test_same_dot_dimensions() -> None:
    rows = [row for row in matched("dots") if row[1].opcode == "dot"]
    assert len(rows) == 2
    for _, ours, theirs in rows:
        d = dims.dot_dims(ours)
        expected = (d.lhs_batch, d.lhs_contracting, d.rhs_batch, d.rhs_contracting)
        assert expected == theirs.dot_dims


def test_same_windows_and_labels() -> None:
    rows = [row for row in matched("convolutions") if row[1].opcode == "convolution"]
    assert len(rows) == 3
    for _, ours, theirs in rows:
        window = [
            (w.size, w.stride, w.pad_low, w.pad_high, w.lhs_dilate, w.rhs_dilate, int(w.reversed))
            for w in dims.window(ours).dims
        ]
        assert window == theirs.windows
        c = dims.conv_labels(ours)
        assert theirs.conv_labels == (
            c.lhs_batch, c.lhs_feature, c.lhs_spatial,
            c.rhs_input_feature, c.rhs_output_feature, c.rhs_spatial,
            c.out_batch, c.out_feature, c.out_spatial,
        )  # fmt: skip


def test_same_groups_pairs_and_slices() -> None:
    rows = matched("collectives")
    seen = set()
    for module, ours, theirs in rows:
        if ours.opcode in ("all-reduce", "all-to-all", "all-gather"):
            assert list(collective_groups(ours, module).members) == theirs.groups
        elif ours.opcode == "collective-permute":
            assert list(collective_groups(ours, module).members) == theirs.pairs
        elif ours.opcode == "slice":
            slices = [(s.start, s.limit, s.stride) for s in dims.slice_dims(ours)]
            assert slices == theirs.slices
        else:
            continue
        seen.add(ours.opcode)
    assert seen == {"all-reduce", "all-to-all", "all-gather", "collective-permute", "slice"}
