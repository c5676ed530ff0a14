"""From a result file back to estimates: the program and the machines it names, priced again.

A file names everything by value (request, policy fields) or by name and hash (machines, HLO), so
nothing in it is run: a `module:function` in a file from a stranger would be, and is refused
unless the caller says that the file is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from xla_cost.errors import XlaCostError
from xla_cost.network import NetworkPolicy
from xla_cost.policy import Policy
from xla_cost.price import Estimate, price
from xla_cost.program import Program
from xla_cost.programs import Request, model_program, program_of_text
from xla_cost.report.result_file import ResultFile

_HLO_SUFFIXES = (".hlo", ".txt", ".hlo_text")


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The estimates of one entry of a file, in its order, and hashes that differ from it.

    `entry` is the part of the file they belong to (`results`, `ratio`, ..), `place` where it is.
    """

    place: str
    entry: Mapping[str, Any]
    estimates: tuple[Estimate, ...]
    changed: tuple[str, ...]


def recompute(result: ResultFile, *, trusted: bool = False) -> tuple[Recomputed, ...]:
    """Every estimate in a file of kind estimate, demo or search (there the winner), again.

    Raises XlaCostError for other kinds, for what the file lacks, and, unless `trusted`, for a
    program that is a Python function, because importing it would run code the file names.
    """
    data = result.data
    if result.kind == "estimate":
        entries = [("", data)]
    elif result.kind == "demo":
        entries = [(f"points[{i}]", point) for i, point in enumerate(data["points"])]
    elif result.kind == "search" and data.get("winner"):
        entries = [("winner", data["winner"])]
    else:
        raise XlaCostError(
            f"{result.name}: a result of kind {result.kind} holds no estimate; expected one of "
            "estimate, demo, or search with its winner"
        )
    return tuple(_one(result.name, place, entry, trusted) for place, entry in entries)


def _one(name: str, place: str, entry: Mapping[str, Any], trusted: bool) -> Recomputed:
    from xla_cost.machine import load

    where = f"{name}: {place + '.' if place else ''}"
    program, changed = _program(where, entry, trusted)
    known = _mapping(_mapping(entry, "program"), "provenance").get("hlo_sha256")
    found = dict(program.provenance).get("hlo_sha256")
    if known and found and known != found:
        changed.append(f"the HLO of the program: {str(known)[:12]} in the file, {found[:12]} now")
    estimates = []
    for index, stored in enumerate(entry["results"]):
        machine = load(stored["machine"])
        if stored.get("machine_hash") not in (None, machine.content_hash):
            changed.append(
                f"machine {machine.name}: {str(stored['machine_hash'])[:12]} in the file, "
                f"{machine.content_hash[:12]} now"
            )
        at = f"{where}results[{index}]"
        policy = _fields(Policy, stored.get("policy"), f"{at}.policy")
        network = _fields(NetworkPolicy, stored.get("network_policy"), f"{at}.network_policy")
        estimates.append(price(program, machine, policy, network))
    return Recomputed(place, entry, tuple(estimates), tuple(changed))


def _program(where: str, entry: Mapping[str, Any], trusted: bool) -> tuple[Program, list[str]]:
    asked = {**_mapping(entry, "input"), **_mapping(entry, "request")}
    model = asked.get("model", entry.get("model"))
    if not isinstance(model, str) or not model:
        raise XlaCostError(f"{where}model is missing; expected what the estimate was made of")
    if model.endswith(_HLO_SUFFIXES):
        return _hlo(where, model)
    if ":" in model:
        if not trusted:
            raise XlaCostError(
                f"{where}model = {model!r:.80} is Python code, which would run; expected --trust "
                "if this file is yours"
            )
        from xla_cost.api import lower_target
        from xla_cost.target import load_target

        target = entry.get("target", "cpu")
        return lower_target(load_target(model), str(target)).program, []
    return model_program(_request(where, {**entry, **asked, "model": model})).program, []


def _hlo(where: str, path: str) -> tuple[Program, list[str]]:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise XlaCostError(
            f"{where}model = {path!r:.120}: cannot be read ({error.strerror}); expected HLO text"
        ) from None
    return program_of_text(text, Path(path).name), []


def _request(where: str, entry: Mapping[str, Any]) -> Request:
    hints = get_type_hints(Request)
    values = {
        name: _of(hints[name], entry[name], f"{where}{name}")
        for name in (field.name for field in fields(Request))
        if name != "mesh" and entry.get(name) is not None
    }
    mesh = entry.get("mesh")
    shape = mesh.get("shape") if isinstance(mesh, Mapping) else mesh
    sizes = shape if isinstance(shape, list) else []
    if len(sizes) != 3 or not all(type(size) is int and size >= 1 for size in sizes):
        raise XlaCostError(f"{where}mesh = {shape!r:.80}; expected three sizes of at least 1")
    if values.get("placement") == "xyz":  # how results write that the plan's order was kept
        del values["placement"]
    missing = {"seq", "batch"} - values.keys()
    if missing:
        raise XlaCostError(f"{where}{min(missing)} is missing; expected a whole number")
    return Request(mesh=(sizes[0], sizes[1], sizes[2]), **values)


def _fields(kind: type[Any], value: Any, where: str) -> Any:
    """A frozen dataclass of plain fields from its JSON. Raises XlaCostError where it is not."""
    if not isinstance(value, Mapping):
        raise XlaCostError(f"{where} is missing; expected the fields of a {kind.__name__}")
    hints = get_type_hints(kind)
    unknown = sorted(value.keys() - hints.keys())
    if unknown:
        raise XlaCostError(f"{where}.{unknown[0]} is unknown; expected {', '.join(hints)}")
    given = {name: _of(hints[name], item, f"{where}.{name}") for name, item in value.items()}
    try:
        return kind(**given)
    except TypeError as error:
        raise XlaCostError(f"{where}: {error}; expected the fields of a {kind.__name__}") from None


def _of(hint: Any, item: Any, where: str) -> Any:
    """`item` as a value of type `hint`: a Literal, a set of strings, or a plain type."""
    if get_origin(hint) is Literal:
        good, expected = item in get_args(hint), f"one of {', '.join(get_args(hint))}"
    elif get_origin(hint) is frozenset:
        good = isinstance(item, list) and all(isinstance(one, str) for one in item)
        item, expected = frozenset(item) if good else item, "a list of strings"
    else:
        wanted = (int, float) if hint is float else hint
        good = isinstance(item, wanted) and (hint is bool or not isinstance(item, bool))
        expected = f"a value of type {hint.__name__}"
    if not good:
        raise XlaCostError(f"{where} = {item!r:.80}; expected {expected}")
    return item


def _mapping(entry: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = entry.get(key)
    return value if isinstance(value, Mapping) else {}
