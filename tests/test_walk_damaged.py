"""What fuzzing found in the walker, each as a minimal module."""

from xla_cost.hlo import parse
from xla_cost.walk import walk


def test_two_instructions_of_one_name_of_which_one_is_a_parameter() -> None:
    """A parameter after another instruction of its name, whose element is taken: atheris."""
    (module,) = parse("""
HloModule m
ENTRY e {
  t = (s32[], f32[4]) unknown-op()
  a = f32[4] get-tuple-element(t), index=1
  t = (s32[], f32[4]) parameter(0)
  ROOT n = f32[4] negate(a)
}
""")
    ops = [op for op, _ in walk(module).walk()]
    assert [op.opcode for op in ops] == [
        "unknown-op", "get-tuple-element", "parameter", "negate",
    ]  # fmt: skip
    assert ops[1].deps == (0,)
