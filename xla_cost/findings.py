"""What a partitioned program does that its author hardly meant, what it costs, and the cure.

Two kinds: what XLA complained about while partitioning, and large arguments that every device
holds in full while others are split. Nothing here imports jax.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from xla_cost.errors import XlaCostError
from xla_cost.program import Collective, Op, Program
from xla_cost.units import bytes_text, seconds_text
from xla_cost.walk.scopes import scope_of

if TYPE_CHECKING:
    from xla_cost.price import Estimate

#: A weight of 4096 x 4096 in bf16: the smallest that one would split over devices.
LARGE_BYTES = 32 * 2**20

REPLICATED = "large-replicated-argument"
REMATERIALIZED = "involuntary-full-rematerialization"


class Complaint(Protocol):
    """What a warning of the compiler must tell; see `xla_cost.lowering.CompilerWarning`."""

    @property
    def kind(self) -> str:
        """Short name."""

    @property
    def op_name(self) -> str:
        """The jax scope path."""

    @property
    def source(self) -> str:
        """The user's file:line, or ""."""

    @property
    def bytes(self) -> int:
        """Size of the whole tensor concerned, 0 unknown."""

    @property
    def cure(self) -> str:
        """What usually helps."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to mend.

    `op` is the jax scope path, or the name of the argument; `source` the user's file:line that
    makes the value, `used_at` the one that wants it otherwise. `bytes` is the size of the whole
    tensor, which every device holds. `collectives` are the ops of the program that it costs,
    `moved_bytes` what one device receives in them in one run, `seconds` what they take on the
    machine it was priced on (None: not priced, or nothing is moved). `text` is the line that
    the program's own `warnings` have for it.
    """

    kind: str
    op: str
    scope: str
    source: str
    bytes: int
    cure: str
    text: str = ""
    used_at: str = ""
    collectives: tuple[str, ...] = ()
    moved_bytes: int = 0
    executions: int = 0
    machine: str = ""
    seconds: float | None = None
    exposed_s: float | None = None

    @property
    def cost(self) -> str:
        """Its bytes and seconds in words; "" where nothing is known."""
        parts = []
        if self.bytes:
            parts.append(f"{bytes_text(self.bytes)} on every device")
        if self.collectives:
            times = f" in {self.executions} executions" if self.executions > 1 else ""
            parts.append(
                f"{bytes_text(self.moved_bytes)} received{times} ({', '.join(self.collectives)})"
            )
        if self.seconds is not None:
            parts.append(
                f"{seconds_text(self.seconds)} on {self.machine}, "
                f"of which {seconds_text(self.exposed_s or 0.0)} not hidden"
            )
        return ", ".join(parts)

    def __str__(self) -> str:
        """One line: what, where, cost, cure."""
        place = f" at {self.source}" if self.source else ""
        if self.used_at and self.used_at != self.source:
            place += f", for {self.used_at}"
        cost = f": {self.cost}" if self.cost else ""
        return f"{self.kind}: {self.op or '(no scope)'}{place}{cost}; {self.cure}"


def findings(
    program: Program, warnings: Iterable[Complaint], estimate: Estimate | None = None
) -> tuple[Finding, ...]:
    """The compiler's warnings about `program` with what they cost, dearest first.

    A full rematerialization is looked for among the collectives of the program: the one in the
    same scope that leaves the whole tensor on every device, and those that feed it. Where all
    of them are another's, one that XLA left without scope and line is taken.
    """
    taken: set[int] = set()
    ops = [(op, times) for op, times in program.walk() if op.collective is not None]
    found = [
        Finding(
            kind=warning.kind,
            op=warning.op_name,
            scope=scope_of(warning.op_name).path,
            source=warning.source,
            bytes=warning.bytes,
            cure=warning.cure,
            text=str(warning),
        )
        for warning in warnings
    ]
    for with_a_line in (True, False):
        found = [
            _with_collectives(each, ops, taken, with_a_line)
            if each.kind == REMATERIALIZED and not each.collectives
            else each
            for each in found
        ]
    return costed(found, estimate) if estimate is not None else _sorted(found)


def costed(found: Iterable[Finding], estimate: Estimate) -> tuple[Finding, ...]:
    """The same findings with the seconds of their collectives on the machine of `estimate`."""
    rows = {row.name: row for row in estimate.collectives}
    priced = []
    for finding in found:
        own = [rows[name] for name in finding.collectives if name in rows]
        if own:
            finding = replace(
                finding,
                machine=estimate.machine.name,
                seconds=sum(row.seconds for row in own),
                exposed_s=sum(row.exposed_s for row in own),
            )
        priced.append(finding)
    return _sorted(priced)


def finding_json(finding: Finding) -> dict[str, Any]:
    """All fields, SI units; `finding_from_json` reads it back."""
    return asdict(finding)


def finding_from_json(fields: Mapping[str, Any]) -> Finding:
    """The finding that `finding_json` wrote."""
    return Finding(**{**fields, "collectives": tuple(fields["collectives"])})


def _sorted(found: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(
        sorted(found, key=lambda f: (-(f.seconds or 0.0), -f.moved_bytes, -f.bytes, f.kind, f.op))
    )


def _with_collectives(
    finding: Finding, ops: Sequence[tuple[Op, float]], taken: set[int], with_a_line: bool
) -> Finding:
    """`finding` with the gather that makes the whole tensor, and the gathers that feed it.

    XLA blames the value before the op that wants another sharding, so the gather may carry the
    line of that op.
    """
    whole: list[tuple[bool, int]] = []
    for index, (op, _) in enumerate(ops):
        if index in taken or _moved(ops[index]).result_bytes != finding.bytes:
            continue
        here = op.scope == finding.scope or not (with_a_line or op.scope)
        if here and bool(op.source) == with_a_line:
            whole.append((op.source != finding.source, index))
    if not whole:
        return finding
    last = min(whole)[1]
    chain = [last]
    wanted = _moved(ops[last]).payload_bytes
    for index in range(last - 1, -1, -1):
        op, moved = ops[index][0], _moved(ops[index])
        same_place = (op.scope, op.source) == (ops[last][0].scope, ops[last][0].source)
        if same_place and index not in taken and moved.result_bytes == wanted:
            chain.insert(0, index)
            wanted = moved.payload_bytes
    taken.update(chain)
    return replace(
        finding,
        used_at=ops[last][0].source,
        collectives=tuple(ops[index][0].name for index in chain),
        moved_bytes=int(sum(_received(_moved(ops[i])) * ops[i][1] for i in chain)),
        executions=int(ops[last][1]),
    )


def _moved(entry: tuple[Op, float]) -> Collective:
    collective = entry[0].collective
    assert collective is not None  # the list holds collectives alone
    return collective


def _received(moved: Collective) -> int:
    """Bytes one device receives: all of a gather's result but its own part."""
    if moved.kind == "all-gather":
        return moved.result_bytes - moved.payload_bytes
    return moved.result_bytes


_PARAMETER_LINE = re.compile(r"^.*? parameter\(\d+\).*$", re.MULTILINE)
_TILES = re.compile(r"\{devices=\[([\d,]+)\]")


def replicated_arguments(hlo_text: str, large_bytes: int = LARGE_BYTES) -> tuple[Finding, ...]:
    """Arguments of at least `large_bytes` that every device holds whole while others are split.

    Read from the shardings that the partitioner leaves on the parameters of the entry; none
    where the text has no shardings, or where no argument is split.
    """
    whole: list[tuple[str, int]] = []
    parts = 0
    for parameter in _entry_parameters(hlo_text):
        sharding = parameter.attributes.get("sharding", "")
        tiles = _tiles(sharding)
        parts = max(parts, tiles)
        size = getattr(parameter.shape, "bytes", 0)
        if tiles == 1 and size >= large_bytes:
            whole.append((parameter.op_name or parameter.name, size))
    if parts < 2:
        return ()
    return _sorted(_replicated(name, size, parts) for name, size in whole)


def _replicated(name: str, size: int, parts: int) -> Finding:
    return Finding(
        kind=REPLICATED,
        op=name,
        scope="",
        source="",
        bytes=size,
        cure="give it a PartitionSpec that splits its largest dimension: other arguments are "
        f"split up to {parts} ways, which would leave {bytes_text(size / parts)} on each device",
        text=f"{REPLICATED}: {name}",
    )


def _entry_parameters(text: str) -> Sequence[Any]:
    """The entry's parameters. Only their lines are parsed: a program may have 100 MB of others."""
    from xla_cost.hlo import parse

    start = text.find("\nENTRY ")
    end = text.find("\n}", start + 1)
    if start < 0:
        return ()
    lines = _PARAMETER_LINE.findall(text, start, end if end > 0 else len(text))
    try:
        modules = parse("HloModule parameters\n\nENTRY parameters {\n" + "\n".join(lines) + "\n}\n")
    except XlaCostError:  # not one line of them can be read
        return ()
    return modules[0].entry.parameters


def _tiles(sharding: str) -> int:
    """How many parts a tensor is split into: 1 is a copy on every device, 0 is not known."""
    if sharding == "{replicated}":
        return 1
    tiles = _TILES.match(sharding)
    if tiles is None:
        return 0
    sizes = [int(size) for size in tiles[1].split(",")]
    if "last_tile_dims={" in sharding:
        kinds = sharding.split("last_tile_dims={", 1)[1].split("}", 1)[0]
        sizes = sizes[: len(sizes) - len(kinds.split(","))]
    elif "last_tile_dim_replicate" in sharding:
        sizes = sizes[:-1]
    parts = 1
    for size in sizes:
        parts *= size
    return parts
