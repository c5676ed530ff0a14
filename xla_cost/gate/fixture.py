"""What the pytest fixture `xla_cost` gives: a lock per test, and assertions about a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from xla_cost.errors import XlaCostError
from xla_cost.findings import Finding
from xla_cost.gate.check import CheckResult, check_program
from xla_cost.gate.compare import below_here
from xla_cost.gate.lock import describe
from xla_cost.gate.places import takers_of
from xla_cost.gate.report import change_lines
from xla_cost.groups import DeviceGroups
from xla_cost.program import Collective, CollectiveKind, Op, Program
from xla_cost.units import bytes_text


class CostGate:
    """The fixture. `fn` is what `xla_cost.lower` takes, or something lowered already.

    `default_lock` is the lock of the test, `folder` where relative lock paths start, `update`
    writes locks instead of comparing.
    """

    def __init__(self, default_lock: Path, folder: Path, update: bool) -> None:
        self._default_lock = default_lock
        self._folder = folder
        self._update = update
        self._locks: set[Path] = set()

    def program(self, fn: Any, *args: Any, mesh: Any = None, **options: Any) -> Costs:
        """Partition `fn(*args)` and return what it computes and moves.

        `fn` may also be "module:function", a `Lowered` or a `Program`; `options` are those of
        `xla_cost.lower`. Raises XlaCostError when it cannot be lowered.
        """
        __tracebackhide__ = True
        program, found = _lowered(fn, args, mesh, options)
        return Costs(program, found)

    def check(
        self,
        fn: Any,
        *args: Any,
        mesh: Any = None,
        lock: str | Path | None = None,
        machine: str = "b300",
        exact: bool = False,
        **options: Any,
    ) -> Costs:
        """Fail the test when `fn(*args)` got worse than its lock file says.

        Without `lock` the file is `costs/TESTFILE.TEST.lock` beside the test file. What came or
        grew is priced on `machine`; with `exact` any difference fails. `--xla-cost-update`
        writes the file.
        """
        __tracebackhide__ = True
        path = self._path(lock)
        costs = self.program(fn, *args, mesh=mesh, **options)
        if not self._update and not path.exists():
            pytest.fail(
                f"{below_here(str(path))}: there is no lock yet; "
                "make it with pytest --xla-cost-update",
                pytrace=False,
            )
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
        result = check_program(
            costs.program, path, findings=costs.findings, machine=machine,
            update=self._update, exact=exact,
        )  # fmt: skip
        if not result.ok:
            pytest.fail(_message(result, path), pytrace=False)
        return costs

    def _path(self, lock: str | Path | None) -> Path:
        """The lock's path; of several checks in one test without a name each has its own."""
        path = self._folder / lock if lock is not None else self._default_lock
        if lock is not None and path in self._locks:
            raise XlaCostError(f"lock {str(lock)!r}: is used twice in one test; expected one each")
        number = 1
        while path in self._locks:
            number += 1
            path = path.with_name(f"{self._default_lock.stem}.{number}.lock")
        self._locks.add(path)
        return path


@dataclass(frozen=True, slots=True)
class Costs:
    """One partitioned program and what can be asserted about it."""

    program: Program
    findings: tuple[Finding, ...] = ()

    @property
    def flops(self) -> int:
        """Matrix FLOPs of one device."""
        return int(sum(op.flops * times for op, times in self.program.walk()))

    @property
    def peak_memory_bytes(self) -> int:
        """Arguments and the most that is alive at once, of one device."""
        return self.program.parameter_bytes + self.program.entry.peak_live_bytes

    def assert_no_collective(
        self, kind: str = "", *, larger_than_bytes: int = 0, scope: str = ""
    ) -> None:
        """Fail when a collective of this kind ("": any) has more bytes, input or result.

        Bytes are per device and execution; `scope` limits it to that part of the program.
        """
        __tracebackhide__ = True
        found = [
            (op, moved, times)
            for op, moved, times in self._collectives(kind, scope)
            if max(moved.payload_bytes, moved.result_bytes) > larger_than_bytes
        ]
        size = f" larger than {bytes_text(larger_than_bytes)}" if larger_than_bytes else ""
        place = f" in {scope}" if scope else ""
        _refuse(f"no {kind or 'collective'}{size}{place}", self._spell(found))

    def assert_stays_in_pod(self, pod: int, kind: str = "", *, scope: str = "") -> None:
        """Fail when a collective connects devices of two pods of `pod` devices.

        Device ids are positions in `mesh.devices.flat`, pods are runs of them.
        """
        __tracebackhide__ = True
        if pod < 1:
            raise XlaCostError(f"pod = {pod}; expected at least 1 device")
        crosses: dict[DeviceGroups, bool] = {}
        found = []
        for op, moved, times in self._collectives(kind, scope):
            groups = moved.groups
            if groups not in crosses:
                crosses[groups] = any(len({i // pod for i in ids}) > 1 for ids in groups.members)
            if crosses[groups]:
                found.append((op, moved, times))
        _refuse(f"no {kind or 'collective'} between pods of {pod} devices", self._spell(found))

    def assert_flops_at_most(self, flops: float) -> None:
        """Fail when one device does more matrix FLOPs."""
        __tracebackhide__ = True
        if self.flops > flops:
            raise AssertionError(f"{self.flops:,} FLOP per device; expected at most {flops:,.0f}")

    def assert_peak_memory_at_most(self, limit_bytes: float) -> None:
        """Fail when one device holds more at once, arguments included."""
        __tracebackhide__ = True
        if self.peak_memory_bytes > limit_bytes:
            raise AssertionError(
                f"{bytes_text(self.peak_memory_bytes)} per device at the peak; "
                f"expected at most {bytes_text(limit_bytes)}"
            )

    def assert_no_findings(self, kind: str = "") -> None:
        """Fail when XLA complained, or a large argument is replicated; `kind` limits it."""
        __tracebackhide__ = True
        _refuse("no finding", [str(f) for f in self.findings if kind in ("", f.kind)])

    def _collectives(self, kind: str, scope: str) -> Iterator[tuple[Op, Collective, float]]:
        """Those of this kind and scope. A misspelt one must not make an assertion hold."""
        __tracebackhide__ = True
        if kind not in ("", *get_args(CollectiveKind)):
            raise XlaCostError(
                f"kind {kind!r} is unknown; expected one of {', '.join(get_args(CollectiveKind))}"
            )
        if not any(_inside(op.scope, scope) for op, _ in self.program.walk()):
            raise XlaCostError(f"scope {scope!r}: the program has none; expected one of its own")
        for op, times in self.program.walk():
            moved = op.collective
            if moved is None or moved.groups.size <= 1 or not _inside(op.scope, scope):
                continue
            if kind in ("", moved.kind):
                yield op, moved, times

    def _spell(self, found: list[tuple[Op, Collective, float]]) -> list[str]:
        takers = takers_of(self.program) if found else {}
        return [_spell(op, moved, times, takers.get(id(op), "")) for op, moved, times in found]


def _lowered(
    fn: Any, args: tuple[Any, ...], mesh: Any, options: dict[str, Any]
) -> tuple[Program, tuple[Finding, ...]]:
    from xla_cost.api import Lowered, lower, lower_target
    from xla_cost.target import Target, load_target

    if isinstance(fn, str):
        fn = load_target(fn)
    given = bool(args or options or mesh is not None)
    if given and isinstance(fn, Target | Lowered | Program):
        raise XlaCostError(
            f"xla_cost: a {type(fn).__name__} has its arguments already; expected none beside it"
        )
    if isinstance(fn, Program):
        return fn, ()
    if isinstance(fn, Target):
        fn = lower_target(fn)
    if not isinstance(fn, Lowered):
        made: Callable[..., Lowered] = lower
        fn = made(fn, *args, mesh=mesh, **options)
    return fn.program, fn.findings


def _inside(scope: str, part: str) -> bool:
    return not part or f"/{part}/" in f"/{scope}/"


def _spell(op: Op, moved: Collective, times: float, taker: str) -> str:
    source = f" at {below_here(op.source)}" if op.source else ""
    wanted_by = f", for {below_here(taker)}" if taker else ""
    return (
        f"{moved.kind} {moved.format} over {describe(moved.groups)} in "
        f"{op.scope or '(no scope)'}: {int(times)} x {moved.payload_bytes:,} bytes"
        f" -> {moved.result_bytes:,}{source}{wanted_by}"
    )


def _refuse(expected: str, found: list[str], most: int = 10) -> None:
    __tracebackhide__ = True
    if not found:
        return
    lines = [f"expected {expected}, found {len(found)}:", *(f"  {line}" for line in found[:most])]
    if len(found) > most:
        lines.append(f"  and {len(found) - most} more")
    raise AssertionError("\n".join(lines))


def _message(result: CheckResult, path: Path) -> str:
    name = below_here(str(path))
    lines = [f"{name}: {len(result.worse)} of {len(result.changes)} changes are for the worse"]
    lines += [f"  note: {note}" for note in result.notes]
    lines += change_lines(result.changes, "  ")
    return "\n".join([*lines, "  accept with: pytest --xla-cost-update"])
