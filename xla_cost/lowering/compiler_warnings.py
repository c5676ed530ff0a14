"""What XLA complains about while it partitions, as findings that name the user's line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from xla_cost.hlo.ir import BITS
from xla_cost.lowering.source_lines import SourceLines


@dataclass(frozen=True, slots=True)
class CompilerWarning:
    """One complaint of the compiler.

    `kind` is a short name (`involuntary-full-rematerialization`, ..), `op_name` the jax scope
    path, `hlo_name` the instruction, `source` the user's `file:line` ("" where XLA does not
    say), `bytes` the size of the whole tensor concerned (what every device ends up holding
    when it is replicated; 0 unknown), `text` what XLA wrote, `cure` what usually helps.
    """

    kind: str
    op_name: str
    hlo_name: str
    source: str
    bytes: int
    text: str
    cure: str

    def __str__(self) -> str:
        """One line: what, where, how large, what to do."""
        where = f" at {self.source}" if self.source else ""
        size = f" ({self.bytes} bytes in full)" if self.bytes else ""
        return f"{self.kind}: {self.op_name or self.hlo_name}{where}{size}: {self.cure}"


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    pattern: re.Pattern[str]
    cure: str


_RULES = (
    _Rule(
        "involuntary-full-rematerialization",
        re.compile(r"Involuntary full rematerialization"),
        "XLA gathers the whole tensor on every device to change {change}; put the sharding you "
        "want on the value before this op with with_sharding_constraint, go through one "
        "intermediate sharding that moves one mesh axis at a time, or write the step in shard_map",
    ),
    _Rule(
        "slow-constant-folding",
        re.compile(r"Constant folding an instruction is taking"),
        "a large constant is baked into the program; pass it as an argument instead",
    ),
)

#: 0 prints everything, 1 warnings and errors (jax's own setting), 2 errors, 3 nothing.
_HIDES_WARNINGS = 2

#: That logging is not set up, and lines of level I: say nothing to a user.
_NOISE = re.compile(r"All log messages before absl::InitializeLog\(\) is called|^I\d{4} ")

#: Level, date, time, process and place: differs from run to run.
_LOG_PREFIX = re.compile(r"^[IWEF]\d{4} [\d:.]+\s+\d+ [\w./]+:\d+\] ")

_OPERATION = re.compile(
    r"for HLO operation %?(?P<name>[\w.\-]+) = (?P<dtype>\w+)\[(?P<dims>[\d,]*)\]"
)
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_SOURCE = re.compile(r'source_file="([^"]*)"(?:\s+source_line=(\d+))?')
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_CHANGE = re.compile(r"cannot go from sharding (\{.*?\}) to (\{.*?\}) efficiently")
_TILES = re.compile(r"sharding=\{devices=\[([\d,]+)\](?:<=\[[\d,]+\](?:T\([\d,]+\))?)?([^{}]*)\}")


def parse_warnings(
    lines: Iterable[str], hlo_text: str
) -> tuple[tuple[CompilerWarning, ...], list[str]]:
    """Sort lines of standard error into warnings and the rest, which is the caller's to show.

    `hlo_text` is the module they are about: its tables turn a `stack_frame_id` into file
    and line. Equal warnings are given once.
    """
    known: dict[CompilerWarning, None] = dict.fromkeys(_hidden_warnings())
    rest: list[str] = []
    sources = SourceLines(hlo_text)
    for line in lines:
        rule = next((rule for rule in _RULES if rule.pattern.search(line)), None)
        if rule is not None:
            known.setdefault(_read(rule, line, sources))
        elif not _NOISE.search(line):
            rest.append(line)
    return tuple(known), rest


def _hidden_warnings() -> Iterable[CompilerWarning]:
    """Say so when the user's environment keeps XLA from printing warnings at all."""
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")
    if level.isdigit() and int(level) >= _HIDES_WARNINGS:
        text = f"TF_CPP_MIN_LOG_LEVEL={level} hides XLA's warnings"
        yield CompilerWarning(
            "warnings-hidden", "", "", "", 0, text, "unset TF_CPP_MIN_LOG_LEVEL to see them"
        )


def _read(rule: _Rule, line: str, sources: SourceLines) -> CompilerWarning:
    operation = _OPERATION.search(line)
    op_name = _OP_NAME.search(line)
    change = _CHANGE.search(line)
    how = f"its sharding from {change[1]} to {change[2]}" if change else "its sharding"
    return CompilerWarning(
        kind=rule.kind,
        op_name=op_name[1] if op_name else "",
        hlo_name=operation["name"] if operation else "",
        source=_source(line, sources),
        bytes=_whole_bytes(operation, line) if operation else 0,
        text=_LOG_PREFIX.sub("", line.strip()),
        cure=rule.cure.format(change=how),
    )


def _source(line: str, sources: SourceLines) -> str:
    direct = _SOURCE.search(line)
    if direct:
        return f"{direct[1]}:{direct[2]}" if direct[2] else direct[1]
    frame = _FRAME.search(line)
    return sources.of_frame(int(frame[1])) if frame else ""


def _whole_bytes(operation: re.Match[str], line: str) -> int:
    """Bytes of the whole tensor: XLA prints one device's part and how it is tiled."""
    elements = 1
    for size in filter(None, operation["dims"].split(",")):
        elements *= int(size)
    tiles = _TILES.search(line)
    if tiles:
        dims = [int(size) for size in tiles[1].split(",")]
        rank = len(operation["dims"].split(",")) if operation["dims"] else 0
        for size in dims[:rank]:
            elements *= size
    return (elements * BITS.get(operation["dtype"], 0) + 7) // 8
