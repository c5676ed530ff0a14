"""Damaged text gives modules or one clear error, never a traceback, in linear time."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hlo_texts import ALL
from hypothesis import given, settings
from hypothesis import strategies as st

from xla_cost.errors import XlaCostError
from xla_cost.hlo import Instruction, Module, dims, parse, read_file
from xla_cost.hlo.constants import constant_value
from xla_cost.hlo.groups import collective_groups

TEXTS = [text.encode() for text in ALL.values()]
PIECES = [
    b'"', b"{", b"}", b"(", b")", b"[", b"]", b",", b"=", b" = ", b"\n", b"%", b"ROOT ",
    b"ENTRY ", b"HloModule x\n", b"// ", b"/*", b"*/", b"\\", b"\x00", b"\xff", b"f32[2]{0} ",
    b"constant(", b"to_apply={", b"<=", b"?", b"99999999999999999999", b"// -----\n",
    b"StackFrames\n",
]  # fmt: skip
WORDS = [piece.decode("latin-1") for piece in PIECES] + list("abx1 ")
TYPED = (
    dims.dot_dims, dims.window, dims.conv_labels, dims.feature_group_count, dims.dimensions,
    dims.slice_dims, dims.padding,
)  # fmt: skip


def look_at(modules: tuple[Module, ...]) -> int:
    """Ask every instruction for everything; gives how many there are."""
    count = 0
    for module in modules:
        assert module.entry.instructions
        assert all(number >= 1 for number, _ in module.unparsed)
        for computation in module.computations.values():
            assert computation.root in computation.instructions
            assert len(computation.parameters) <= len(computation.instructions)
            for instruction in computation.instructions:
                ask(instruction, module)
                count += 1
    return count


def ask(instruction: Instruction, module: Module) -> None:
    assert instruction.shape.bytes >= 0
    assert all(isinstance(name, str) for name in instruction.operands + instruction.called)
    assert isinstance(instruction.op_name, str)
    assert isinstance(instruction.source, str)
    assert isinstance(instruction.frontend_attributes, dict)
    _ = instruction.operand_shapes, instruction.backend_config, constant_value(instruction)
    for question in TYPED:
        one_sentence(question, instruction)
    one_sentence(collective_groups, instruction, module)


def one_sentence(function: Callable[..., object], *arguments: object) -> object:
    """What `function` gives, or None where it refuses in one sentence."""
    message = ""
    try:
        return function(*arguments)
    except XlaCostError as error:
        message = str(error)
    assert message
    assert "\n" not in message
    return None


def instructions_of(modules: object) -> int:
    """Instructions in what `parse` gave, all of them looked at; 0 where it refused."""
    return look_at(modules) if isinstance(modules, tuple) else 0


def mutated(text: bytes, dice: random.Random) -> bytes:
    """`text` with a few bytes changed, cut out, doubled or put in."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(text) + 1)
        end = min(len(text), at + dice.randint(0, 40))
        match dice.randrange(5):
            case 0:
                text = text[:at] + dice.choice(PIECES) + text[at:]
            case 1:
                text = text[:at] + text[end:]
            case 2:
                text = text[:at] + text[at:end] * 3 + text[end:]
            case 3:
                text = text[:at] + bytes([dice.randrange(256)]) + text[at + 1 :]
            case _:
                text = text[:at]
    return text


@pytest.mark.parametrize("seed", range(8))
def test_mutated_modules_never_raise_anything_else(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    path = tmp_path / "m.hlo"
    read = 0
    for _ in range(60):
        path.write_bytes(mutated(dice.choice(TEXTS), dice))
        read += instructions_of(one_sentence(read_file, path))
    assert read > 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([p.decode("latin-1") for p in PIECES] + list("abx1 ")), max_size=60)
)
def test_any_sequence_of_pieces(pieces: list[str]) -> None:
    modules = one_sentence(parse, "".join(pieces))
    assert modules is None or instructions_of(modules) > 0


HEAD = "HloModule m\nENTRY e {\n"
#: Text that makes a careless reader backtrack, recurse or start over on every line.
HOSTILE = {
    "open brackets": lambda n: HEAD + "x = " + "(" * n,
    "nested tuples": lambda n: HEAD + "x = " + "(" * n + ")" * n + " tuple()\n}",
    "escapes in an open string": lambda n: HEAD + 'x = f32[] add(a), b="' + '\\"' * n,
    "open comments": lambda n: HEAD + "x = f32[] add(a" + "/*" * n,
    "braces": lambda n: HEAD + "x = f32[] add(a), b=" + "{" * n,
    "one line": lambda n: HEAD + " ".join(f"x{i} = f32[] sine(p), a=b" for i in range(n // 20)),
    "computations on one line": lambda n: "c { x = f32[] parameter(0) } " * (n // 30),
    "arrows": lambda n: "f (x: " + "->" * n + "\n",
    "open headers": lambda n: "f (x) -> (\n" * (n // 20),
    "open strings": lambda n: HEAD + 'x = f32[] add(a), b="\n' * (n // 20),
    "open operands": lambda n: HEAD + "x = f32[] foo (a, b=(\n" * (n // 20),
    "types only": lambda n: "x = (\n" * (n // 20),
    "inline operands": lambda n: HEAD + f"x = f32[] add({'f32[] constant(1), ' * (n // 20)}a)\n}}",
    "inline in inline": lambda n: HEAD + "x = f32[] " + "add(f32[] " * (n // 20) + ")" * (n // 20),
    "nested bodies": lambda n: HEAD + "x = f32[] map(a), to_apply={\n" * (n // 20),
    "braces too many": lambda n: HEAD + "x = f32[] sine(p)}\n" * (n // 20),
    "digits": lambda n: HEAD + f"x = f32[{'9' * n}] parameter({'9' * n})\n}}",
    "words": lambda n: "a b = " * n,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_read_or_refused(name: str) -> None:
    modules = one_sentence(parse, HOSTILE[name](20_000))
    assert modules is None or instructions_of(modules) > 0
