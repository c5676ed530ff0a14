"""The lock file: what a partitioned program computes and moves, in sorted, diffable text.

    # xla-cost lock 1. What one device computes and moves; rewrite with `xla-cost check --update`.
    made-with jax 0.10.2
    devices 8
    tolerance flops 0 %
    tolerance collective_bytes 0 %
    tolerance memory 2 %
    flops bf16 1048576
    collective all-gather bf16 4 devices x 2 [0:4:1] scope=layer/ffn bytes=65536 executions=12
    warning involuntary-full-rematerialization scope=layer/ffn count=1
    memory parameters 4194304
    memory peak 8388608

Lines of the user's source are not in it: they move with every unrelated edit. They are
printed from the program at hand when something came or grew.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from xla_cost.errors import XlaCostError
from xla_cost.groups import DeviceGroups
from xla_cost.program import Program

VERSION = 1
_HEADER = f"# xla-cost lock {VERSION}."
_HINT = " What one device computes and moves; rewrite with `xla-cost check --update`."

#: Allowed growth in percent when a lock names none.
DEFAULT_TOLERANCES: Mapping[str, float] = {"flops": 0.0, "collective_bytes": 0.0, "memory": 2.0}


@dataclass(frozen=True, slots=True, order=True)
class CollectiveKey:
    """What makes two collectives the same one: everything but its size and count."""

    kind: str
    format: str
    groups: str  # "4 devices x 2 [0:4:1]": size, count, and the first group
    scope: str


@dataclass(frozen=True, slots=True, order=True)
class WarningKey:
    """A finding of the compiler, by kind and model part."""

    kind: str
    scope: str


@dataclass(frozen=True, slots=True)
class Lock:
    """Quantities of one program. `collectives` maps a key and a payload size to executions."""

    devices: int
    flops: Mapping[str, int]
    collectives: Mapping[tuple[CollectiveKey, int], int]
    memory: Mapping[str, int]
    warnings: Mapping[WarningKey, int] = field(default_factory=dict)
    tolerances: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_TOLERANCES))
    made_with: str = ""


def lock_of(
    program: Program,
    warnings: Iterable[WarningKey] = (),
    *,
    tolerances: Mapping[str, float] = DEFAULT_TOLERANCES,
    made_with: str = "",
) -> Lock:
    """The lock of `program`: FLOPs by format, collectives of more than one device, memory."""
    flops: Counter[str] = Counter()
    collectives: Counter[tuple[CollectiveKey, int]] = Counter()
    for op, times in program.walk():
        for matmul in op.matmuls:
            flops[matmul.format] += matmul.flops * int(times)
        moved = op.collective
        if moved is not None and moved.groups.size > 1:
            key = CollectiveKey(moved.kind, moved.format, describe(moved.groups), op.scope)
            collectives[key, moved.payload_bytes] += int(times)
    return Lock(
        devices=program.devices,
        flops=dict(flops),
        collectives=dict(collectives),
        memory={
            "parameters": program.parameter_bytes,
            "peak": program.parameter_bytes + program.entry.peak_live_bytes,
        },
        warnings=dict(Counter(warnings)),
        tolerances=dict(tolerances),
        made_with=made_with,
    )


def describe(groups: DeviceGroups) -> str:
    """`4 devices x 2 [0:4:1]`: size, count, first group as start:stop:step or its ids."""
    unit = "pairs" if groups.is_pairs else f"devices x {groups.count}"
    size = groups.count if groups.is_pairs else groups.size
    first = groups.members[0] if groups.members else ()
    step = first[1] - first[0] if len(first) > 1 else 1
    if step and first == tuple(range(first[0], first[0] + step * len(first), step)):
        ids = f"{first[0]}:{first[-1] + step}:{step}"
    else:
        ids = ",".join(map(str, first[:8])) + (",.." if len(first) > 8 else "")
    return f"{size} {unit} [{ids}]"


def render(lock: Lock) -> str:
    """The text of a lock file; equal locks give equal bytes."""
    lines = [f"devices {lock.devices}"]
    lines += [f"tolerance {name} {value:g} %" for name, value in sorted(lock.tolerances.items())]
    lines += [f"flops {name} {value}" for name, value in sorted(lock.flops.items())]
    lines += [
        f"collective {key.kind} {key.format} {key.groups} scope={key.scope} "
        f"bytes={size} executions={count}"
        for (key, size), count in sorted(lock.collectives.items())
    ]
    lines += [
        f"warning {key.kind} scope={key.scope} count={count}"
        for key, count in sorted(lock.warnings.items())
    ]
    lines += [f"memory {name} {value}" for name, value in sorted(lock.memory.items())]
    if lock.made_with:
        lines.insert(0, f"made-with {lock.made_with}")
    return "\n".join([_HEADER + _HINT, *lines]) + "\n"


_COLLECTIVE = re.compile(
    r"(?P<kind>\S+) (?P<format>\S+) (?P<groups>[^\[]*\[[^\]]*\]) "
    r"scope=(?P<scope>.*) bytes=(?P<bytes>\d+) executions=(?P<count>\d+)"
)
_WARNING = re.compile(r"(?P<kind>\S+) scope=(?P<scope>.*) count=(?P<count>\d+)")
_TOLERANCE = re.compile(r"(?P<name>\w+) (?P<value>\d+(?:\.\d+)?) %")
_AMOUNT = re.compile(r"(?P<name>\S+) (?P<value>\d+)")


def parse(text: str, where: str) -> Lock:
    """Read a lock file back. Raises XlaCostError naming line, text found and form expected."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith(_HEADER):
        found = lines[0][:60] if lines else "an empty file"
        raise XlaCostError(f"{where}: line 1 is {found!r}; expected {_HEADER!r}")
    devices = 0
    made_with = ""
    tolerances: dict[str, float] = dict(DEFAULT_TOLERANCES)
    flops: dict[str, int] = {}
    memory: dict[str, int] = {}
    collectives: dict[tuple[CollectiveKey, int], int] = {}
    warnings: dict[WarningKey, int] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip() or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "made-with":
            made_with = rest
        elif word == "devices" and rest.isdigit():
            devices = int(rest)
        elif word == "tolerance" and (match := _TOLERANCE.fullmatch(rest)):
            if match["name"] not in DEFAULT_TOLERANCES:
                raise XlaCostError(
                    f"{where}: line {number}: tolerance {match['name']!r}; "
                    f"expected one of {', '.join(DEFAULT_TOLERANCES)}"
                )
            tolerances[match["name"]] = float(match["value"])
        elif word == "flops" and (match := _AMOUNT.fullmatch(rest)):
            flops[match["name"]] = int(match["value"])
        elif word == "memory" and (match := _AMOUNT.fullmatch(rest)):
            memory[match["name"]] = int(match["value"])
        elif word == "collective" and (match := _COLLECTIVE.fullmatch(rest)):
            key = CollectiveKey(match["kind"], match["format"], match["groups"], match["scope"])
            collectives[key, int(match["bytes"])] = int(match["count"])
        elif word == "warning" and (match := _WARNING.fullmatch(rest)):
            warnings[WarningKey(match["kind"], match["scope"])] = int(match["count"])
        else:
            raise XlaCostError(
                f"{where}: line {number} is {line[:80]!r}; expected devices, tolerance, flops, "
                "collective, warning or memory as `xla-cost check --update` writes them"
            )
    return Lock(devices, flops, collectives, memory, warnings, tolerances, made_with)
