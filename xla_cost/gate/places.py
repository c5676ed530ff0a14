"""Where in the user's source a quantity of the lock comes from, and what it costs there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xla_cost.findings import Finding
from xla_cost.gate.lock import CollectiveKey, WarningKey, collective_key, one_line
from xla_cost.program import Op, Program

if TYPE_CHECKING:
    from xla_cost.price import Estimate

#: that the environment hides XLA's warnings is not a property of the program
_NOT_OF_THE_PROGRAM = ("warnings-hidden",)


@dataclass(frozen=True, slots=True)
class Place:
    """Lines of the user's source, the largest part first; seconds of one run on the machine."""

    lines: tuple[str, ...] = ()
    seconds: float | None = None


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
                tuple(dict.fromkeys(op.source for op in ops if op.source)),
                sum(seconds_of[op.name] for op in ops) if estimate is not None else None,
            )
            for key, ops in moved.items()
        },
        flops={
            scope: Place(tuple(sorted(by_line, key=lambda line: (-by_line[line], line))))
            for scope, by_line in lines.items()
        },
        findings={warning_key(finding): finding for finding in reversed(tuple(found))},
        machine=estimate.machine.name if estimate is not None else "",
    )


def warning_key(finding: Finding) -> WarningKey:
    """What the lock knows a finding by: an argument by its name, an op by its scope."""
    return WarningKey(finding.kind, one_line(finding.scope or finding.op))


def warning_keys(found: Iterable[Finding]) -> tuple[WarningKey, ...]:
    """Keys of the findings that belong into a lock."""
    return tuple(warning_key(f) for f in found if f.kind not in _NOT_OF_THE_PROGRAM)
