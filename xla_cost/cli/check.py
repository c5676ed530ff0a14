"""`xla-cost check`: exit 1 when a partitioned program changed for the worse against its lock."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xla_cost.errors import XlaCostError

if TYPE_CHECKING:
    from xla_cost.findings import Finding
    from xla_cost.gate.check import CheckResult
    from xla_cost.program import Program

_HLO_SUFFIXES = (".hlo", ".txt", ".hlo_text")


def check(
    program: Annotated[str, typer.Argument(
        help="module:function, file.py:function or an HLO file")],
    lock: Annotated[Path, typer.Option(help="the lock file, one per program")],
    update: Annotated[bool, typer.Option(
        "--update", help="write the lock; the tolerances it names are kept")] = False,
    exact: Annotated[bool, typer.Option(
        "--exact", help="any difference fails, savings too; tolerances are not used")] = False,
    machine: Annotated[str, typer.Option(
        help="prices what came or grew; not part of the lock")] = "b300",
    target: Annotated[str, typer.Option(help="cpu, gpu:h100, tpu:v5e-16, ..")] = "cpu",
    annotate: Annotated[bool, typer.Option(
        "--annotate", help="also print GitHub annotations, which mark the lines of a pull request")]
    = False,
    json: Annotated[str, typer.Option("--json", help="write JSON to a file, - for standard output")]
    = "",
) -> None:  # fmt: skip
    """Compare what a program computes and moves with its lock file; exit 1 when it got worse."""
    from xla_cost.gate.check import check_program, read_lock
    from xla_cost.gate.report import annotation
    from xla_cost.machine import load

    load(machine)  # mistakes before the compiler runs
    if not update:
        read_lock(lock)
    ledger, found = _program(program, target)
    result = check_program(
        ledger, lock, findings=found, machine=machine, update=update, exact=exact
    )
    if json:
        _write_json(json, program, lock, result)
    if json != "-":
        print("\n".join(_report(result, lock)))
        if not result.ok:
            print(f"accept with: xla-cost check {program} --lock {lock} --update")
    if annotate:
        for change in result.worse:
            print(annotation(change), file=sys.stderr if json == "-" else sys.stdout)
    if not result.ok:
        raise typer.Exit(1)


def _program(place: str, target: str) -> tuple[Program, tuple[Finding, ...]]:
    from xla_cost.show.progress import working

    if place.endswith(_HLO_SUFFIXES):
        return _from_file(place)
    if ":" not in place:
        raise XlaCostError(
            f"check {place!r}: expected module:function, file.py:function or an HLO file"
        )
    from xla_cost.api import lower_target
    from xla_cost.target import load_target

    with working(f"partitioning {place}"):
        lowered = lower_target(load_target(place), target)
    return lowered.program, lowered.findings


def _from_file(path: str) -> tuple[Program, tuple[Finding, ...]]:
    from xla_cost.findings import replicated_arguments
    from xla_cost.hlo.parser import read_text
    from xla_cost.programs import program_of_text

    text = read_text(path)
    program = program_of_text(text, Path(path).name, whole=True)
    return program, replicated_arguments(text)


def _report(result: CheckResult, lock: Path) -> list[str]:
    from xla_cost.gate.report import change_lines

    lines = [f"note: {note}" for note in result.notes]
    worse = len(result.worse)
    lines += change_lines(result.changes)
    if result.updated:
        return [*lines, f"{lock}: written"]
    accepted = len(result.findings) - len(result.notes)
    if not result.changes:
        lines.append(f"{lock}: nothing changed")
    elif worse:
        lines.append(f"{lock}: {worse} of {len(result.changes)} changes are for the worse")
    else:
        lines.append(f"{lock}: no change for the worse")
    if accepted > 0 and not any(change.what == "warning" for change in result.changes):
        lines.append(f"{accepted} findings are accepted by the lock; see xla-cost estimate")
    return lines


def _write_json(json: str, program: str, lock: Path, result: CheckResult) -> None:
    from xla_cost.jsonio import write_json
    from xla_cost.provenance import provenance

    answer: dict[str, Any] = {"check": program, "lock_file": str(lock), **result.to_json()}
    write_json(json, {**answer, "provenance": provenance(sys.argv[1:])})
