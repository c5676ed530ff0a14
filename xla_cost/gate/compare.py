"""What changed between a lock and the program at hand, and whether it is for the worse."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xla_cost.gate.lock import CollectiveKey, Lock, describe
from xla_cost.program import Program


@dataclass(frozen=True, slots=True)
class Change:
    """One difference, ready to print. `worse` fails the gate."""

    worse: bool
    text: str
    source: str = ""  # the user's file:line, where the program at hand knows it

    def __str__(self) -> str:
        return self.text + (f"  <- {self.source}" if self.source else "")


def changes(old: Lock, new: Lock, sources: Mapping[CollectiveKey, str]) -> tuple[Change, ...]:
    """Every difference from `old` to `new`, the worse ones first.

    A quantity is worse when it grew by more than the tolerance that `old` names for it.
    `sources` gives the source line of a collective of the new program, see `source_lines`.
    """
    found = [
        *_devices(old, new),
        *_collectives(old, new, sources),
        *_amounts("FLOPs in", old.flops, new.flops, old.tolerances["flops"], "FLOP"),
        *_amounts("memory:", old.memory, new.memory, old.tolerances["memory"], "bytes"),
        *_warnings(old, new),
    ]
    return tuple(sorted(found, key=lambda change: not change.worse))


def source_lines(program: Program) -> dict[CollectiveKey, str]:
    """The user's source line of each collective of `program`."""
    lines: dict[CollectiveKey, str] = {}
    for op, _ in program.walk():
        moved = op.collective
        if moved is not None and op.source:
            key = CollectiveKey(moved.kind, moved.format, describe(moved.groups), op.scope)
            lines.setdefault(key, op.source)
    return lines


def _devices(old: Lock, new: Lock) -> Iterator[Change]:
    if old.devices != new.devices:
        yield Change(True, f"devices: {old.devices} in the lock, {new.devices} now")


def _collectives(old: Lock, new: Lock, sources: Mapping[CollectiveKey, str]) -> Iterator[Change]:
    before, after = _sizes(old), _sizes(new)
    for key in sorted(before.keys() | after.keys()):
        was, now = before.get(key, {}), after.get(key, {})
        if was == now:
            continue
        what = f"{key.kind} {key.format} over {key.groups} in {key.scope or '(no scope)'}"
        was_bytes, now_bytes = _total(was), _total(now)
        source = sources.get(key, "")
        if not was:
            yield Change(True, f"new: {what}: {_spell(now)}", source)
        elif not now:
            yield Change(False, f"gone: {what}: {_spell(was)}")
        else:
            allowed = was_bytes * (1 + old.tolerances["collective_bytes"] / 100)
            more_often = sum(now.values()) > sum(was.values())
            yield Change(
                now_bytes > allowed or (more_often and now_bytes >= was_bytes),
                f"changed: {what}: {_spell(was)} -> {_spell(now)} "
                f"({_percent(was_bytes, now_bytes)} bytes)",
                source,
            )


def _amounts(
    what: str, old: Mapping[str, int], new: Mapping[str, int], tolerance: float, unit: str
) -> Iterator[Change]:
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name, 0), new.get(name, 0)
        if was != now:
            yield Change(
                now > was * (1 + tolerance / 100),
                f"{what} {name}: {was:,} -> {now:,} {unit} ({_percent(was, now)})",
            )


def _warnings(old: Lock, new: Lock) -> Iterator[Change]:
    for key in sorted(old.warnings.keys() | new.warnings.keys()):
        was, now = old.warnings.get(key, 0), new.warnings.get(key, 0)
        if was != now:
            yield Change(
                now > was, f"compiler warning {key.kind} in {key.scope}: {was} -> {now} times"
            )


def _sizes(lock: Lock) -> Mapping[CollectiveKey, Mapping[int, int]]:
    """Payload bytes -> executions, by collective."""
    sizes: defaultdict[CollectiveKey, dict[int, int]] = defaultdict(dict)
    for (key, size), count in lock.collectives.items():
        sizes[key][size] = count
    return sizes


def _total(sizes: Mapping[int, int]) -> int:
    return sum(size * count for size, count in sizes.items())


def _spell(sizes: Mapping[int, int]) -> str:
    return " + ".join(f"{count} x {size:,} bytes" for size, count in sorted(sizes.items()))


def _percent(was: int, now: int) -> str:
    if was == 0:
        return "new"
    return f"{100 * (now - was) / was:+.1f} %"
