"""Where in the user's source a quantity of the lock comes from, and what it costs there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xla_cost.findings import REPLICATED, Finding
from xla_cost.gate.lock import CollectiveKey, WarningKey, collective_key, one_line
from xla_cost.program import Body, Branch, Loop, Op, Program

if TYPE_CHECKING:
    from xla_cost.price import Estimate

#: that the environment hides XLA's warnings is not a property of the program
_NOT_OF_THE_PROGRAM = ("warnings-hidden",)


@dataclass(frozen=True, slots=True)
class Place:
    """Lines of the user's source, the largest part first; seconds of one run on the machine.

    `wanted_by` are lines that take the value where XLA blames the one that made it.
    """

    lines: tuple[str, ...] = ()
    seconds: float | None = None
    wanted_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Places:
    """Places by what a lock knows a quantity by. `flops` is by format and scope."""

    collectives: Mapping[tuple[CollectiveKey, int], Place] = field(default_factory=dict)
    flops: Mapping[tuple[str, str], Place] = field(default_factory=dict)
    findings: Mapping[WarningKey, Finding] = field(default_factory=dict)
    machine: str = ""


def places_of(
    program: Program, found: Iterable[Finding] = (), estimate: Estimate | None = None
) -> Places:
    """The places of everything in the lock of `program`; seconds where there is an estimate."""
    seconds_of: defaultdict[str, float] = defaultdict(float)
    for row in estimate.collectives if estimate is not None else ():
        seconds_of[row.name] += row.seconds
    found = tuple(found)
    # XLA leaves some of the collectives it complains about without a line
    blamed = {name: finding.source for finding in found for name in finding.collectives}
    takers = takers_of(program)
    moved: defaultdict[tuple[CollectiveKey, int], list[Op]] = defaultdict(list)
    lines: defaultdict[tuple[str, str], defaultdict[str, float]] = defaultdict(
        lambda: defaultdict(float)
    )
    for op, times in program.walk():
        if op.collective is not None:
            key = collective_key(op, op.collective)
            moved[key, op.collective.payload_bytes].append(op)
        for matmul in op.matmuls:
            if op.source:
                lines[matmul.format, one_line(op.scope)][op.source] += matmul.flops * times
    return Places(
        collectives={
            key: Place(
                tuple(dict.fromkeys(filter(None, (_line(op, blamed) for op in ops)))),
                sum(seconds_of[op.name] for op in ops) if estimate is not None else None,
                tuple(dict.fromkeys(takers[id(op)] for op in ops if id(op) in takers)),
            )
            for key, ops in moved.items()
        },
        flops={
            scope: Place(tuple(sorted(by_line, key=lambda line: (-by_line[line], line))))
            for scope, by_line in lines.items()
        },
        findings={warning_key(finding): finding for finding in reversed(found)},
        machine=estimate.machine.name if estimate is not None else "",
    )


def takers_of(program: Program) -> dict[int, str]:
    """Per collective (by identity) the line that takes its result, where that is another one.

    XLA gives a collective that changes a sharding the line of the value; the sharding that is
    wanted is on the line of whatever takes it, often a sharding constraint.
    """
    found: dict[int, str] = {}
    seen: set[int] = set()
    pending = [program.entry]
    while pending:
        body = pending.pop()
        if id(body) in seen:
            continue
        seen.add(id(body))
        open_: dict[int, Op] = {}  # node -> the collective whose result it hands on
        for index, node in enumerate(body.nodes):
            pending += [] if isinstance(node, Op) else inside(node)
            given = [open_[dep] for dep in node.deps if dep in open_]
            source = "" if isinstance(node, Branch) else node.source
            for collective in given if source else ():
                found.setdefault(id(collective), source)
            if isinstance(node, Op) and node.collective is not None:
                open_[index] = node
            elif given and isinstance(node, Op) and not source:
                open_[index] = given[0]
    own = {id(op): op.source for op, _ in program.walk() if id(op) in found}
    return {key: line for key, line in found.items() if own.get(key) not in ("", line)}


def inside(node: Loop | Branch) -> tuple[Body, ...]:
    """The bodies of a loop or a conditional."""
    return (node.body,) if isinstance(node, Loop) else node.bodies


def _line(op: Op, blamed: Mapping[str, str]) -> str:
    return op.source or blamed.get(op.name, "")


def warning_key(finding: Finding) -> WarningKey:
    """What the lock knows a finding by: an argument by its name, an op by its scope."""
    name = finding.op if finding.kind == REPLICATED else finding.scope
    return WarningKey(finding.kind, one_line(name))


def warning_keys(found: Iterable[Finding]) -> tuple[WarningKey, ...]:
    """Keys of the findings that belong into a lock."""
    return tuple(warning_key(f) for f in found if f.kind not in _NOT_OF_THE_PROGRAM)
