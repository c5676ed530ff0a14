"""The lock file: what a partitioned program computes and moves, in sorted, diffable text.

    # xla-cost lock 1. What one device computes and moves; rewrite with `xla-cost check --update`.
    made-with jax 0.10.2
    devices 8
    tolerance flops 0 %
    tolerance collective_bytes 0 %
    tolerance memory 2 %
    flops bf16 1048576
    flops bf16 scope=layer/ffn 1048576
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
from xla_cost.program import Collective, Op, Program

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
    """Quantities of one program.

    `flops` is by format, `scope_flops` by format and scope; `collectives` maps a key and a
    payload size to executions.
    """

    devices: int
    flops: Mapping[str, int]
    collectives: Mapping[tuple[CollectiveKey, int], int]
    memory: Mapping[str, int]
    warnings: Mapping[WarningKey, int] = field(default_factory=dict)
    tolerances: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_TOLERANCES))
    made_with: str = ""
    scope_flops: Mapping[tuple[str, str], int] = field(default_factory=dict)


def lock_of(
    program: Program,
    warnings: Iterable[WarningKey] = (),
    *,
    tolerances: Mapping[str, float] = DEFAULT_TOLERANCES,
    made_with: str = "",
) -> Lock:
    """The lock of `program`: FLOPs by format, collectives of more than one device, memory."""
    flops: Counter[str] = Counter()
    scope_flops: Counter[tuple[str, str]] = Counter()
    collectives: Counter[tuple[CollectiveKey, int]] = Counter()
    for op, times in program.walk():
        for matmul in op.matmuls:
            flops[matmul.format] += matmul.flops * int(times)
            scope_flops[matmul.format, one_line(op.scope)] += matmul.flops * int(times)
        moved = op.collective
        if moved is not None and moved.groups.size > 1:
            collectives[collective_key(op, moved), moved.payload_bytes] += int(times)
    return Lock(
        devices=program.devices,
        flops=dict(flops),
        collectives=dict(collectives),
        memory={
            "parameters": program.parameter_bytes,
            "peak": program.parameter_bytes + program.entry.peak_live_bytes,
        },
        warnings=dict(Counter(WarningKey(w.kind, one_line(w.scope)) for w in warnings)),
        tolerances=dict(tolerances),
        made_with=one_line(made_with),
        scope_flops=dict(scope_flops),
    )


def collective_key(op: Op, moved: Collective) -> CollectiveKey:
    """What the lock knows the collective of `op` by."""
    return CollectiveKey(moved.kind, moved.format, describe(moved.groups), one_line(op.scope))


def one_line(text: str) -> str:
    """`text` with line ends, control characters and odd spaces spelled as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def describe(groups: DeviceGroups) -> str:
    """`4 devices x 2 [0:4:1]`: size, count, first group as start:stop:step or its ids.

    Pairs are `8 pairs [0>4]`: how many, and the first between two devices.
    """
    if groups.is_pairs:
        pair = next((ids for ids in groups.members if len(set(ids)) > 1), (0, 0))
        return f"{groups.count} pairs [{pair[0]}>{pair[-1]}]"
    first = groups.members[0] if groups.members else ()
    step = first[1] - first[0] if len(first) > 1 else 1
    if step and first == tuple(range(first[0], first[0] + step * len(first), step)):
        ids = f"{first[0]}:{first[-1] + step}:{step}"
    else:
        ids = ",".join(map(str, first[:8])) + (",.." if len(first) > 8 else "")
    return f"{groups.size} devices x {groups.count} [{ids}]"


def render(lock: Lock) -> str:
    """The text of a lock file; equal locks give equal bytes."""
    lines = [f"devices {lock.devices}"]
    lines += [
        f"tolerance {name} {_plain(value)} %" for name, value in sorted(lock.tolerances.items())
    ]
    lines += [f"flops {name} {value}" for name, value in sorted(lock.flops.items())]
    lines += [
        f"flops {name} scope={scope} {value}"
        for (name, scope), value in sorted(lock.scope_flops.items())
    ]
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


def _plain(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


_COLLECTIVE = re.compile(
    r"(?P<kind>\S+) (?P<format>\S+) (?P<groups>[^\[]*\[[^\]]*\]) "
    r"scope=(?P<scope>.*) bytes=(?P<bytes>[0-9]{1,30}) executions=(?P<count>[0-9]{1,30})"
)
_WARNING = re.compile(r"(?P<kind>\S+) scope=(?P<scope>.*) count=(?P<count>[0-9]{1,30})")
_TOLERANCE = re.compile(r"(?P<name>\w+) (?P<value>[0-9]{1,9}(?:\.[0-9]{1,9})?) %")
_NUMBER = re.compile(r"[0-9]{1,18}")
_AMOUNT = re.compile(r"(?P<name>\S+) (?P<value>[0-9]{1,30})")
_SCOPE_FLOPS = re.compile(r"(?P<name>\S+) scope=(?P<scope>.*) (?P<value>[0-9]{1,30})")


def parse(text: str, where: str) -> Lock:
    """Read a lock file back. Raises XlaCostError naming line, text found and form expected."""
    lines = text.split("\n")
    if not lines[0].startswith(_HEADER):
        found = lines[0][:60] or "an empty line"
        raise XlaCostError(f"{where}: line 1 is {found!r}; expected {_HEADER!r}")
    reader = _Reader(where)
    for number, line in enumerate(lines[1:], start=2):
        line = line.rstrip("\r")
        if line.strip() and not line.startswith("#"):
            reader.read(number, line)
    if reader.devices is None:
        raise XlaCostError(f"{where}: has no line `devices`; expected one, as --update writes it")
    return Lock(
        reader.devices, reader.flops, reader.collectives, reader.memory, reader.warnings,
        reader.tolerances, reader.made_with, reader.scope_flops,
    )  # fmt: skip


class _Reader:
    """Takes the lines of a lock file one by one."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.made_with = ""
        self.devices: int | None = None
        self.tolerances: dict[str, float] = dict(DEFAULT_TOLERANCES)
        self.flops: dict[str, int] = {}
        self.scope_flops: dict[tuple[str, str], int] = {}
        self.memory: dict[str, int] = {}
        self.collectives: dict[tuple[CollectiveKey, int], int] = {}
        self.warnings: dict[WarningKey, int] = {}
        self._seen: dict[object, int] = {}

    def read(self, number: int, line: str) -> None:
        """Take one line. Raises XlaCostError when it has no known form or repeats another."""
        word, _, rest = line.partition(" ")
        take = {
            "made-with": self._made_with, "devices": self._devices, "tolerance": self._tolerance,
            "flops": self._flops, "memory": self._memory, "collective": self._collective,
            "warning": self._warning,
        }.get(word)  # fmt: skip
        key = take(number, rest) if take else None
        if key is None:
            raise XlaCostError(
                f"{self.where}: line {number} is {line[:80]!r}; expected devices, tolerance, "
                "flops, collective, warning or memory as `xla-cost check --update` writes them"
            )
        before = self._seen.setdefault((word, key), number)
        if before != number:
            raise XlaCostError(
                f"{self.where}: line {number} repeats line {before}; expected each quantity once"
            )

    def _made_with(self, number: int, rest: str) -> object:
        self.made_with = rest
        return ""

    def _devices(self, number: int, rest: str) -> object:
        if not _NUMBER.fullmatch(rest):
            return None
        self.devices = int(rest)
        return ""

    def _tolerance(self, number: int, rest: str) -> object:
        match = _TOLERANCE.fullmatch(rest)
        if match is None:
            return None
        if match["name"] not in DEFAULT_TOLERANCES:
            raise XlaCostError(
                f"{self.where}: line {number}: tolerance {match['name']!r}; "
                f"expected one of {', '.join(DEFAULT_TOLERANCES)}"
            )
        self.tolerances[match["name"]] = float(match["value"])
        return match["name"]

    def _flops(self, number: int, rest: str) -> object:
        if match := _SCOPE_FLOPS.fullmatch(rest):
            self.scope_flops[match["name"], match["scope"]] = int(match["value"])
            return match["name"], match["scope"]
        match = _AMOUNT.fullmatch(rest)
        if match is None:
            return None
        self.flops[match["name"]] = int(match["value"])
        return match["name"]

    def _memory(self, number: int, rest: str) -> object:
        match = _AMOUNT.fullmatch(rest)
        if match is None:
            return None
        self.memory[match["name"]] = int(match["value"])
        return match["name"]

    def _collective(self, number: int, rest: str) -> object:
        match = _COLLECTIVE.fullmatch(rest)
        if match is None:
            return None
        key = CollectiveKey(match["kind"], match["format"], match["groups"], match["scope"])
        self.collectives[key, int(match["bytes"])] = int(match["count"])
        return key, int(match["bytes"])

    def _warning(self, number: int, rest: str) -> object:
        match = _WARNING.fullmatch(rest)
        if match is None:
            return None
        key = WarningKey(match["kind"], match["scope"])
        self.warnings[key] = int(match["count"])
        return key
