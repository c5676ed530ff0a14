"""Hold a partitioned program against its lock file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from xla_cost.errors import XlaCostError
from xla_cost.gate.compare import Change, changes, source_lines
from xla_cost.gate.lock import DEFAULT_TOLERANCES, Lock, WarningKey, lock_of, parse, render
from xla_cost.jsonio import write_text
from xla_cost.program import Program


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`ok` is False when anything changed for the worse. `updated`: the lock was rewritten."""

    ok: bool
    changes: tuple[Change, ...]
    lock: Lock
    updated: bool = False
    note: str = ""  # another jax version made the lock, ..


def read_lock(path: Path) -> Lock:
    """The lock at `path`. Raises XlaCostError when it is missing or malformed."""
    try:
        text = path.read_text()
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
    warnings: Iterable[WarningKey] = (),
    made_with: str = "",
    update: bool = False,
) -> CheckResult:
    """Compare `program` with the lock at `path`, or with `update` rewrite the lock.

    An update keeps the tolerances that the file names. The same program on the same jax
    version gives the same bytes.
    """
    exists = path.exists()
    old = read_lock(path) if exists or not update else None
    tolerances = old.tolerances if old is not None else DEFAULT_TOLERANCES
    new = lock_of(program, warnings, tolerances=tolerances, made_with=made_with)
    found = changes(old, new, source_lines(program)) if old is not None else ()
    if update:
        write_text(path, render(new))
        return CheckResult(True, found, new, updated=True)
    note = ""
    if old is not None and old.made_with and made_with and old.made_with != made_with:
        note = f"the lock was made with {old.made_with}, this is {made_with}"
    return CheckResult(not any(change.worse for change in found), found, new, note=note)
