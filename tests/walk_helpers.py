"""Short ways to walk HLO text in tests."""

from __future__ import annotations

from collections import Counter

from xla_cost.hlo import parse
from xla_cost.program import Collective, Loop, Op, Program
from xla_cost.walk import DEFAULT_RULES, Rules, walk
from xla_cost.walk.coverage import distinct_nodes

DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
SQUARE = f"""square {{
  p = f32[8,8] parameter(0)
  ROOT d = f32[8,8] dot(p, p), {DOT}
}}
"""


def entry(*lines: str, before: str = "", header: str = "") -> str:
    """A module whose entry has these lines, after the computations `before`."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule m{header}\n\n{before}\nENTRY e {{\n{body}\n}}\n"


def walked(text: str, rules: Rules = DEFAULT_RULES) -> Program:
    """The program of the first module in `text`."""
    return walk(parse(text)[0], rules=rules)


def flops(program: Program) -> int:
    """Matrix FLOPs of one run of the entry."""
    return sum(op.flops * int(times) for op, times in program.walk())


def vector_flops(program: Program) -> int:
    """Vector FLOPs of one run of the entry."""
    return sum(op.vector_flops * int(times) for op, times in program.walk())


def flops_by_format(program: Program) -> dict[str, int]:
    """Matrix FLOPs per number format."""
    found: Counter[str] = Counter()
    for op, times in program.walk():
        for matmul in op.matmuls:
            found[matmul.format] += matmul.flops * int(times)
    return dict(found)


def collectives(program: Program) -> list[tuple[Collective, int]]:
    """(collective, executions) in program order."""
    return [(op.collective, int(times)) for op, times in program.walk() if op.collective]


def loops(program: Program) -> dict[str, int | None]:
    """Trip count of every loop by its name."""
    return {n.name: n.trips for n in distinct_nodes(program.entry) if isinstance(n, Loop)}


def op(program: Program, name: str) -> Op:
    """The op of that name, in any body."""
    for node in distinct_nodes(program.entry):
        if isinstance(node, Op) and node.name == name:
            return node
    raise KeyError(name)


def kinds(program: Program) -> Counter[str]:
    """How many ops of each kind, free ones left out."""
    return Counter(op.kind for op, _ in program.walk() if op.kind != "free")
