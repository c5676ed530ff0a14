"""What the axes of a sweep may hold: names that exist, each value once, sizes in range."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xla_cost import machine
from xla_cost.errors import XlaCostError
from xla_cost.models import CONFIGS, PLANS, PRESETS, get_config, get_formats, get_plan
from xla_cost.policy import POLICIES, policy
from xla_cost.programs import MOST_COUNTED, MOST_DEVICES, parse_mesh

if TYPE_CHECKING:
    from xla_cost.sweep.spec import SweepSpec

_CHECKS: Mapping[str, tuple[Callable[[str], Any], Callable[[], Sequence[str]], str]] = {
    "models": (get_config, lambda: tuple(CONFIGS), " or a config.json"),
    "machines": (machine.load, machine.names, " or a .toml file"),
    "formats": (get_formats, lambda: tuple(PRESETS), ""),
    "plans": (get_plan, lambda: tuple(PLANS), ""),
    "policies": (policy, lambda: tuple(POLICIES), ""),
}


def check_axes(spec: SweepSpec, where: str) -> None:
    """Refuse a spec whose points could not all be searched and told apart.

    Raises XlaCostError naming `where`, the key and the value: a model, machine, format, plan or
    policy that does not exist, a mesh that is none, more devices, tokens or sequences than can
    be numbered, a value that an axis holds twice.
    """
    for key, (check, known, more) in _CHECKS.items():
        for index, name in enumerate(getattr(spec, key)):
            _check_name(f"{where}: {key}[{index}]", name, check, known, more)
    for index, devices in enumerate(spec.devices):
        _check_most(f"{where}: devices[{index}]", devices, MOST_DEVICES)
    for index, (seq, batch) in enumerate(spec.workloads):
        _check_most(f"{where}: workloads[{index}].seq", seq, MOST_COUNTED)
        _check_most(f"{where}: workloads[{index}].batch", batch, MOST_COUNTED)
    for key in (*_CHECKS, "devices", "workloads"):
        _check_once(f"{where}: {key}", getattr(spec, key))
    if not isinstance(spec.meshes, str):
        _check_once(f"{where}: meshes", [_mesh(where, *one) for one in enumerate(spec.meshes)])


def _check_name(
    place: str,
    name: str,
    check: Callable[[str], Any],
    known: Callable[[], Sequence[str]],
    more: str,
) -> None:
    try:
        check(name)
    except XlaCostError as error:
        head = name.partition(":")[0]
        if head in known() or Path(name).exists():  # what is wrong is inside
            raise XlaCostError(f"{place}: {error}") from error
        raise XlaCostError(
            f"{place} = {name!r}; expected one of {', '.join(known())}{more}"
        ) from error


def _check_most(place: str, value: int, most: int) -> None:
    if value > most:
        raise XlaCostError(f"{place} = {value}; expected at most {most}")


def _mesh(where: str, index: int, text: str) -> tuple[int, int, int]:
    try:
        return parse_mesh(text)
    except XlaCostError as error:
        raise XlaCostError(f"{where}: meshes[{index}]: {error}") from error


def _check_once(place: str, values: Sequence[Any]) -> None:
    for index, value in enumerate(values):
        first = values.index(value)
        if first < index:
            raise XlaCostError(
                f"{place}[{index}] = {value!r}; expected each value once, [{first}] is the same"
            )
