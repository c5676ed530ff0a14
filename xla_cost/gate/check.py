"""Hold a partitioned program against its lock file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xla_cost.errors import XlaCostError
from xla_cost.findings import Finding, costed, finding_json
from xla_cost.gate.compare import NOWHERE, Change, changes, worse_count
from xla_cost.gate.lock import DEFAULT_TOLERANCES, Lock, lock_of, parse, render
from xla_cost.gate.places import places_of, warning_keys
from xla_cost.jsonio import write_text
from xla_cost.program import Program

if TYPE_CHECKING:
    from xla_cost.price import Estimate


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`ok` is False when anything changed for the worse. `updated`: the lock was rewritten.

    `findings` are all of the program's, also those the lock has accepted; `notes` what a reader
    must know (another jax made the lock, ..).
    """

    ok: bool
    changes: tuple[Change, ...]
    lock: Lock
    updated: bool = False
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def worse(self) -> tuple[Change, ...]:
        """The changes that fail the gate."""
        return tuple(change for change in self.changes if change.worse)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data: changes, findings, and the new lock as its text."""
        return {
            "ok": self.ok,
            "updated": self.updated,
            "changes": [asdict(change) for change in self.changes],
            "findings": [finding_json(finding) for finding in self.findings],
            "notes": list(self.notes),
            "lock": render(self.lock),
        }


def read_lock(path: Path) -> Lock:
    """The lock at `path`. Raises XlaCostError when it is missing or malformed."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise XlaCostError(
            f"{path}: there is no lock yet; expected a file made with --update"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise XlaCostError(f"{path}: cannot be read as a lock: {error}") from error
    return parse(text, str(path))


def check_program(
    program: Program,
    path: Path,
    *,
    findings: Sequence[Finding] = (),
    machine: str = "",
    update: bool = False,
    exact: bool = False,
) -> CheckResult:
    """Compare `program` with the lock at `path`, or with `update` rewrite the lock.

    An update keeps the tolerances that the file names. The same program on the same jax
    version gives the same bytes. With `exact` every change is for the worse. `machine` is the
    one that prices what came or grew ("" for none); it is not part of the lock.

    Raises XlaCostError for a missing or malformed lock, or an unknown machine.
    """
    old = read_lock(path) if path.exists() or not update else None
    tolerances = old.tolerances if old is not None else DEFAULT_TOLERANCES
    made_with = _made_with(program)
    keys = warning_keys(findings)
    new = lock_of(program, keys, tolerances=tolerances, made_with=made_with)
    changed = old is None or bool(changes(old, new, NOWHERE))
    estimate = _estimate(program, machine) if machine and (changed or findings) else None
    if estimate is not None:
        findings = costed(findings, estimate)
    found = (
        changes(old, new, places_of(program, findings, estimate), exact=exact)
        if old is not None
        else ()
    )
    if update:
        text = render(new).encode()
        updated = not path.exists() or path.read_bytes() != text
        if updated:
            write_text(path, text.decode())
        return CheckResult(True, found, new, updated=updated, findings=tuple(findings))
    notes = [f.cure for f in findings if f.kind == "warnings-hidden"]
    if old is not None and old.made_with and made_with and old.made_with != made_with:
        notes.append(f"the lock was made with {old.made_with}, this is {made_with}")
    return CheckResult(
        worse_count(found) == 0, found, new, notes=tuple(notes), findings=tuple(findings)
    )


def _made_with(program: Program) -> str:
    """The versions that decide what the partitioner does; "" for text of unknown origin."""
    made = dict(program.provenance)
    return f"jax {made['jax']}, target {made['target']}" if "jax" in made else ""


def _estimate(program: Program, machine: str) -> Estimate:
    from xla_cost.machine import load
    from xla_cost.price import price

    return price(program, load(machine), "calibrated")
