"""What changed between a lock and the program at hand, and whether it is for the worse."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from xla_cost.gate.lock import DEFAULT_TOLERANCES, CollectiveKey, Lock
from xla_cost.gate.places import Place, Places
from xla_cost.units import seconds_text

Sizes = Mapping[int, int]  # payload bytes -> executions

_LINES_SHOWN = 3
_SCOPES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Change:
    """One difference, ready to print. `worse` fails the gate.

    `what` is devices, collective, flops, memory or warning; `scope` the jax scope path or the
    argument; `sources` the user's lines (file:line) where the program at hand knows them,
    `wanted_by` those that take the value, where they are others;
    `seconds` what it takes now on `machine`, all executions (None: not priced); `cure` what
    usually helps.
    """

    worse: bool
    what: str
    text: str
    scope: str = ""
    sources: tuple[str, ...] = ()
    wanted_by: tuple[str, ...] = ()
    seconds: float | None = None
    machine: str = ""
    cure: str = ""

    @property
    def source(self) -> str:
        """The line to look at first: one that takes the value, else one that makes it, or ""."""
        return next(iter((*self.wanted_by, *self.sources)), "")

    @property
    def place(self) -> str:
        """Lines below the current folder without it, and the seconds; "" where not known."""
        words = [_lines(self.sources)] if self.sources else []
        if self.wanted_by:
            words.append(f"for {_lines(self.wanted_by)}")
        if self.seconds:
            words.append(f"{seconds_text(self.seconds)} on {self.machine}")
        return ", ".join(words)

    def __str__(self) -> str:
        return self.text + (f"  <- {self.place}" if self.place else "")


def _lines(places: tuple[str, ...]) -> str:
    shown = ", ".join(map(below_here, places[:_LINES_SHOWN]))
    more = len(places) - _LINES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


NOWHERE = Places()


def changes(
    old: Lock, new: Lock, places: Places = NOWHERE, *, exact: bool = False
) -> tuple[Change, ...]:
    """Every difference from `old` to `new`, the worse ones first.

    A quantity is worse when it grew by more than the tolerance that `old` names for it; with
    `exact` every difference is. `places` are those of the new program.
    """
    allowed = dict.fromkeys(DEFAULT_TOLERANCES, 0.0) if exact else old.tolerances
    found = [
        *_devices(old, new),
        *_collectives(old, new, places, allowed["collective_bytes"]),
        *_flops(old, new, places, allowed["flops"]),
        *_memory(old, new, allowed["memory"]),
        *_warnings(old, new, places),
    ]
    if exact:
        found = [replace(change, worse=True) for change in found]
    return tuple(sorted(found, key=lambda change: not change.worse))


def below_here(place: str) -> str:
    """A path below the current folder without it; any other as it is."""
    return place.removeprefix(os.getcwd() + os.sep)


def _devices(old: Lock, new: Lock) -> Iterator[Change]:
    if old.devices != new.devices:
        yield Change(True, "devices", f"devices: {old.devices} in the lock, {new.devices} now")


def _collectives(old: Lock, new: Lock, places: Places, tolerance: float) -> Iterator[Change]:
    before, after = _sizes(old), _sizes(new)
    gone = {key: sizes for key, sizes in before.items() if key not in after}
    for key in sorted(after):
        was, now = before.get(key), after[key]
        if was == now:
            continue
        moved_from = None if was else _same_elsewhere(key, now, gone)
        if moved_from is not None:
            del gone[moved_from]
            text = f"moved: {_name(key)}: {_spell(now)}, before in {_scope(moved_from.scope)}"
            yield _change(False, text, key, now, {}, places)
        elif was is None:
            yield _change(True, f"new: {_name(key)}: {_spell(now)}", key, now, {}, places)
        else:
            text = (
                f"changed: {_name(key)}: {_spell(was)} -> {_spell(now)} "
                f"({_percent(_total(was), _total(now))} bytes)"
            )
            yield _change(_grew(was, now, tolerance), text, key, now, was, places)
    for key, sizes in sorted(gone.items()):
        text = f"gone: {_name(key)}: {_spell(sizes)}"
        yield Change(False, "collective", text, key.scope)


def _change(
    worse: bool, text: str, key: CollectiveKey, now: Sizes, was: Sizes, places: Places
) -> Change:
    """The change of a collective with the lines of the sizes that grew in number."""
    grown = [size for size in sorted(now) if now[size] > was.get(size, 0)] or sorted(now)
    here = [places.collectives.get((key, size), Place()) for size in grown]
    seconds = [place.seconds for place in here if place.seconds is not None]
    lines = tuple(dict.fromkeys(line for place in here for line in place.lines))
    wanted_by = tuple(dict.fromkeys(line for place in here for line in place.wanted_by))
    return Change(
        worse, "collective", text, key.scope, lines, wanted_by,
        sum(seconds) if seconds else None, places.machine,
    )  # fmt: skip


def _grew(was: Sizes, now: Sizes, tolerance: float) -> bool:
    """More bytes than allowed, or as many bytes in more executions."""
    if _total(now) > _total(was) * (1 + tolerance / 100):
        return True
    return _total(now) >= _total(was) and sum(now.values()) > sum(was.values())


def _same_elsewhere(
    key: CollectiveKey, sizes: Sizes, gone: Mapping[CollectiveKey, Sizes]
) -> CollectiveKey | None:
    """The collective that went and differs in nothing but its scope: a renamed part."""
    for other, its in sorted(gone.items()):
        if replace(other, scope=key.scope) == key and its == sizes:
            return other
    return None


def _flops(old: Lock, new: Lock, places: Places, tolerance: float) -> Iterator[Change]:
    for name in sorted(old.flops.keys() | new.flops.keys()):
        was, now = old.flops.get(name, 0), new.flops.get(name, 0)
        if was == now:
            continue
        parts = _scopes_that_moved(name, old, new, up=now > was)
        text = f"FLOPs in {name}: {was:,} -> {now:,} FLOP ({_percent(was, now)})"
        if parts:
            shown = [f"{_scope(scope)} {by:+,}" for scope, by in parts[:_SCOPES_SHOWN]]
            text += f": {', '.join(shown)}" + (", .." if len(parts) > _SCOPES_SHOWN else "")
        first = parts[0][0] if parts else ""
        lines = places.flops.get((name, first), Place()).lines
        yield Change(now > was * (1 + tolerance / 100), "flops", text, first, lines[:1])


def _scopes_that_moved(name: str, old: Lock, new: Lock, up: bool) -> list[tuple[str, int]]:
    """Scopes whose FLOPs changed in the direction of the total, the largest first."""
    scopes = {scope for form, scope in (*old.scope_flops, *new.scope_flops) if form == name}
    by = {
        scope: new.scope_flops.get((name, scope), 0) - old.scope_flops.get((name, scope), 0)
        for scope in scopes
    }
    moved = [(scope, change) for scope, change in by.items() if change and (change > 0) == up]
    return sorted(moved, key=lambda entry: (-abs(entry[1]), entry[0]))


def _memory(old: Lock, new: Lock, tolerance: float) -> Iterator[Change]:
    for name in sorted(old.memory.keys() | new.memory.keys()):
        was, now = old.memory.get(name, 0), new.memory.get(name, 0)
        if was != now:
            text = f"memory: {name}: {was:,} -> {now:,} bytes ({_percent(was, now)})"
            yield Change(now > was * (1 + tolerance / 100), "memory", text)


def _warnings(old: Lock, new: Lock, places: Places) -> Iterator[Change]:
    for key in sorted(old.warnings.keys() | new.warnings.keys()):
        was, now = old.warnings.get(key, 0), new.warnings.get(key, 0)
        if was == now:
            continue
        text = f"finding: {key.kind} in {_scope(key.scope)}: {was} -> {now} times"
        finding = places.findings.get(key) if now > was else None
        if finding is None:
            yield Change(now > was, "warning", text, key.scope)
            continue
        if finding.cost:
            text += f", {finding.cost}"
        source, used_at = finding.source, finding.used_at
        yield Change(
            True, "warning", text, key.scope,
            sources=(source,) if source else (),
            wanted_by=(used_at,) if used_at and used_at != source else (),
            cure=finding.cure,
        )  # fmt: skip


def _sizes(lock: Lock) -> dict[CollectiveKey, Sizes]:
    """Payload bytes -> executions, by collective."""
    sizes: defaultdict[CollectiveKey, dict[int, int]] = defaultdict(dict)
    for (key, size), count in lock.collectives.items():
        sizes[key][size] = count
    return dict(sizes)


def _total(sizes: Sizes) -> int:
    return sum(size * count for size, count in sizes.items())


def _spell(sizes: Sizes) -> str:
    return " + ".join(f"{count} x {size:,} bytes" for size, count in sorted(sizes.items()))


def _name(key: CollectiveKey) -> str:
    return f"{key.kind} {key.format} over {key.groups} in {_scope(key.scope)}"


def _scope(scope: str) -> str:
    return scope or "(no scope)"


def _percent(was: int, now: int) -> str:
    if was == 0:
        return "new"
    return f"{100 * (now - was) / was:+.1f} %"


def worse_count(found: Iterable[Change]) -> int:
    """How many of the changes fail the gate."""
    return sum(change.worse for change in found)
