"""Checks of whole tiers, the same for a file and for a machine made from another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise

from xla_cost.errors import XlaCostError
from xla_cost.machine import schema
from xla_cost.machine.model import Tier

#: Where a tier stands: the file (or the name of a derived machine) and the key.
Place = tuple[str, str]
_GRIDS = ("torus", "hyperx")
#: Field of a `Tier` -> key of a machine file, which has its range.
_KEYS = {
    "size": "size",
    "bandwidth_bytes_per_s": "bandwidth_GBps",
    "latency_s": "latency_us",
    "energy_j_per_byte": "energy_pJ_per_bit",
    "efficiency": "efficiency",
    "dims": "dims",
    "wrap": "wrap",
    "wrap_multiple": "wrap_multiple",
    "reconfiguration_s": "reconfiguration_us",
    "circuit_ports": "circuit_ports",
    "algorithms": "algorithms",
    "in_network_reduction": "in_network_reduction",
    "through_inner": "through_inner",
}
_DEFAULTS = {field.name: field.default for field in fields(Tier)}


def check_figures(tier: Tier, machine: str) -> None:
    """Raise XlaCostError for a field, in SI units, outside the range of its key in a file."""
    schema.topology_of({"topology": tier.topology}, machine, tier.name)
    for name, key_name in _KEYS.items():
        value = getattr(tier, name)
        if value == _DEFAULTS[name] and not isinstance(value, bool | float):
            continue  # absent, in a file
        key = schema.TIER[key_name]
        key = replace(key, minimum=key.minimum * key.to_si, maximum=key.maximum * key.to_si)
        if isinstance(value, tuple):
            value = list(value)
        schema.value_of(value, key, machine, f"{tier.name}.{name}")


def check_shapes(tiers: Sequence[Tier], places: Sequence[Place]) -> None:
    """Raise XlaCostError where a topology and its axes, or two tiers, do not fit together."""
    for tier, place in zip(tiers, places, strict=True):
        _check_axes(tier, *place)
    for i, (tier, (file, where)) in enumerate(zip(tiers, places, strict=True)):
        if tier.name in {other.name for other in tiers[:i]}:
            raise schema.fail(file, f"{where}.name", tier.name, "unique among the tiers")
        if i and tier.topology in _GRIDS:
            raise schema.fail(file, f"{where}.topology", tier.topology,
                              "switch or rail outside the innermost tier")  # fmt: skip
        if not i and tier.through_inner:
            raise schema.fail(file, f"{where}.through_inner", True, "false on the innermost tier")
    for (inner, (_, within)), (outer, (file, where)) in pairwise(zip(tiers, places, strict=True)):
        if outer.size <= inner.size:
            expected = f"> {inner.size}, the size of {within}"
            raise schema.fail(file, f"{where}.size", outer.size, expected)


def _check_axes(tier: Tier, file: str, where: str) -> None:
    key = f"{where}.dims"
    if tier.topology in _GRIDS and not tier.dims:
        raise XlaCostError(f"{file}: {key} is missing; expected the lengths of the axes")
    if tier.dims and tier.topology not in _GRIDS:
        raise schema.fail(file, key, list(tier.dims), f"absent on a {tier.topology}")
    product = 1
    for length in tier.dims:
        product *= length
    if tier.dims and product != tier.size:
        found = "x".join(map(str, tier.dims))
        raise XlaCostError(
            f"{file}: {key} = {found}, that is {product}; must multiply to "
            f"{where}.size = {tier.size}"
        )
    if tier.topology == "torus" and len(tier.wrap) != len(tier.dims):
        raise schema.fail(file, f"{where}.wrap", list(tier.wrap), "one flag per axis")
    for name in ("wrap", "wrap_multiple"):
        value = getattr(tier, name)
        if value and tier.topology != "torus":
            shown = list(value) if isinstance(value, tuple) else value
            raise schema.fail(file, f"{where}.{name}", shown, f"absent on a {tier.topology}")
