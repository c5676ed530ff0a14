"""A result computed again and compared with the file, number by number."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xla_cost.errors import XlaCostError
from xla_cost.jsonio import plain, read_json
from xla_cost.price import compare
from xla_cost.price.as_json import comparison_json, result_json
from xla_cost.provenance import provenance
from xla_cost.report.differences import differences
from xla_cost.report.recompute import Recomputed, recompute
from xla_cost.report.result_file import ResultFile

#: commands whose whole run is repeated. With _PLACES left out none of them imports code that its
#: arguments name, or writes to a place that they name: a file from a stranger can only read.
REPEATED = ("search", "sweep", "serve", "study", "inspect")
#: options with a value that say where results go or what computes them, not what they are
_PLACES = ("--json", "--out", "--trace", "--cluster", "--processes")


@dataclass(frozen=True, slots=True)
class Rerun:
    """`compared` numbers; `different` are (place, in the file, now); `changed` says which
    versions, machines or programs are not those of the file.
    """

    compared: int
    different: tuple[tuple[str, Any, Any], ...]
    changed: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether every number is the same."""
        return not self.different


def rerun(result: ResultFile, *, trusted: bool = False) -> Rerun:
    """Compute what is in a file again.

    An estimate is priced again from its own fields; a search, sweep, study or simulation is
    repeated by its recorded command (only what it reads and how it counts: outputs go to a
    temporary folder). Raises XlaCostError where the file does not say how it was made.
    """
    changed = list(_versions(result.data))
    if result.kind in ("estimate", "demo"):
        different: list[tuple[str, Any, Any]] = []
        compared = 0
        for one in recompute(result, trusted=trusted):
            changed += one.changed
            for place, old, new in _pairs(one):
                compared += _numbers(old)
                different += differences(old, new, place)
        return Rerun(compared, tuple(different), tuple(dict.fromkeys(changed)))
    again = _repeat(result)
    found = tuple(differences(result.data, again))
    return Rerun(_numbers(result.data), found, tuple(changed))


def _pairs(one: Recomputed) -> list[tuple[str, Any, Any]]:
    """(place, stored, now) of results and comparison."""
    entry, estimates = one.entry, one.estimates
    dot = f"{one.place}." if one.place else ""
    pairs = [
        (f"{dot}results[{index}]", stored, plain(result_json(estimate)))
        for index, (stored, estimate) in enumerate(zip(entry["results"], estimates, strict=True))
    ]
    if len(estimates) > 1:
        now = plain(comparison_json(compare(estimates[0], estimates[1])))
        pairs += [(f"{dot}{key}", entry[key], value) for key, value in now.items() if key in entry]
    return pairs


def _repeat(result: ResultFile) -> Any:
    from xla_cost.cli.app import run

    arguments = _arguments(result)
    with tempfile.TemporaryDirectory(prefix="xla-cost-rerun-") as folder:
        path = Path(folder) / "result.json"
        places = ["--json", str(path)]
        if arguments[0] in ("sweep", "study"):
            places += ["--out", str(Path(folder) / "out")]
        said = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            code = run([*arguments, *places])
        if code not in (0, 1) or not path.exists():  # 1: a check of it did not hold, then as now
            last = (said.getvalue().strip().splitlines() or [f"exit {code}"])[-1]
            raise XlaCostError(
                f"{result.name}: repeating xla-cost {arguments[0]} failed: "
                f"{last.removeprefix('xla-cost: ')}"
            )
        return read_json(path)


def _arguments(result: ResultFile) -> list[str]:
    made = result.data.get("provenance")
    command = made.get("command") if isinstance(made, dict) else None
    if (
        not isinstance(command, list)
        or len(command) < 2
        or not all(isinstance(word, str) for word in command)
    ):
        raise XlaCostError(
            f"{result.name}: provenance.command is missing; expected the command that made it"
        )
    if command[1] not in REPEATED:
        raise XlaCostError(
            f"{result.name}: provenance.command[1] = {command[1]!r:.40}; expected one of "
            f"{', '.join(REPEATED)}"
        )
    kept: list[str] = []
    words = iter(command[1:])
    for word in words:
        name, _, value = word.partition("=")
        if name in _PLACES:
            if not value:
                next(words, None)
        elif word not in ("--quiet", "-q", "--resume"):
            kept.append(word)
    return kept


def _versions(data: Mapping[str, Any]) -> list[str]:
    made = data.get("provenance")
    if not isinstance(made, dict):
        return []
    now, found = provenance([]), []
    before = made.get("versions")
    for name, version in (before if isinstance(before, dict) else {}).items():
        if now["versions"].get(name) != version:
            found.append(f"{name}: {version} in the file, {now['versions'].get(name)} now")
    if not found and made.get("code") not in (None, now["code"]):
        found.append(f"code of xla-cost: {made['code']} in the file, {now['code']} now")
    return found


def _numbers(value: Any) -> int:
    pending, count = [value], 0
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            pending.extend(one.values())
        elif isinstance(one, list):
            pending.extend(one)
        elif isinstance(one, int | float) and not isinstance(one, bool):
            count += 1
    return count
