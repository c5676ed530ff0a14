"""The keys a machine file may have, with their ranges, and the checks on one value.

Ranges are far wider than anything built: they catch a wrong unit or a slipped exponent, after
which seconds would overflow or vanish.

Every message reads `FILE: KEY = FOUND; must be EXPECTED`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from xla_cost.errors import XlaCostError
from xla_cost.kernel_time.efficiency import FitRecord
from xla_cost.machine.model import ALGORITHMS, TOPOLOGIES, Figure
from xla_cost.program import FORMATS

Kind = Literal["number", "integer", "flag", "integers", "flags", "words"]


@dataclass(frozen=True, slots=True)
class Key:
    """One figure: type, range, factor to SI."""

    kind: Kind = "number"
    minimum: float = 0.0
    above: bool = False  # whether the minimum itself is refused
    maximum: float = math.inf
    to_si: float = 1.0
    required: bool = True

    @property
    def expected(self) -> str:
        """The range in words."""
        low = f"> {self.minimum:g}" if self.above else f">= {self.minimum:g}"
        return low if self.maximum == math.inf else f"{low} and <= {self.maximum:g}"


_PJ_PER_BIT = 8e-12  # to J per byte

PEAK: Mapping[str, Key] = {
    name: Key(minimum=1e-3, maximum=1e9, to_si=1e12, required=False) for name in FORMATS
}
MEMORY: Mapping[str, Key] = {
    "capacity_GB": Key(minimum=1e-3, maximum=1e9, to_si=1e9),
    "bandwidth_GBps": Key(minimum=1e-3, maximum=1e9, to_si=1e9),
}
POWER: Mapping[str, Key] = {
    "static_W": Key(maximum=1e6),
    "max_W": Key(above=True, maximum=1e6),
}
FLOP_ENERGY: Mapping[str, Key] = {
    name: Key(maximum=1e6, to_si=1e-12, required=False) for name in FORMATS
}
TIER: Mapping[str, Key] = {
    "size": Key("integer", minimum=2, maximum=1e9),
    "bandwidth_GBps": Key(minimum=1e-3, maximum=1e9, to_si=1e9),
    "latency_us": Key(maximum=1e6, to_si=1e-6),
    "energy_pJ_per_bit": Key(maximum=1e6, to_si=_PJ_PER_BIT),
    "efficiency": Key(above=True, maximum=1.0, required=False),
    "dims": Key("integers", minimum=1, required=False),
    "wrap": Key("flags", required=False),
    "wrap_multiple": Key("integer", minimum=1, maximum=1e9, required=False),
    "reconfiguration_us": Key(maximum=1e9, to_si=1e-6, required=False),
    "circuit_ports": Key("integer", minimum=1, maximum=1e9, required=False),
    "algorithms": Key("words", required=False),
    "in_network_reduction": Key("flag", required=False),
    "through_inner": Key("flag", required=False),
}
FIT: Mapping[str, Key] = {
    "floor_us": Key(maximum=1e6, to_si=1e-6),
    "efficiency": Key(above=True, maximum=1.0),
    "half_MB": Key(maximum=1e9, to_si=1e6),
    "ramp": Key(above=True, maximum=1.0, required=False),
    "devices": Key("integer", minimum=2, required=False),
}
#: What a fit records about itself beside its `source`: counts and errors.
RECORD: Mapping[str, Key] = {
    f.name: Key("integer" if "rows" in f.name else "number", required=False)
    for f in fields(FitRecord)
    if f.name != "source"
}
FIT_KINDS = (
    "all-reduce", "all-reduce-nccl", "all-reduce-in-switch", "all-gather", "reduce-scatter",
    "all-to-all", "ragged-all-to-all", "collective-permute", "collective-broadcast", "send-recv",
    "dispatch", "combine",
)  # fmt: skip
TOP = (
    "title", "notes", "extends", "speculative", "inherits_efficiency_from", "peak_TFLOPS",
    "memory", "tiers", "power", "compute_pJ_per_FLOP", "efficiency",
)  # fmt: skip


def shown(value: object) -> str:
    """A value as an error message prints it."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


def fail(file: str, key: str, found: object, expected: str) -> XlaCostError:
    """The error for one bad value."""
    return XlaCostError(f"{file}: {key} = {shown(found)}; must be {expected}")


def refuse_unknown(table: Mapping[str, Any], known: Iterable[str], file: str, where: str) -> None:
    """Raise for the first key that is not known, naming the one it may have meant."""
    known = tuple(known)
    for key in table:
        if key in known:
            continue
        place = f"{where}.{key}" if where else key
        stem = key.split("_")[0].lower()
        twins = [name for name in known if name.split("_")[0].lower() == stem]
        expected = twins[0] if twins else "one of " + ", ".join(known)
        raise XlaCostError(f"{file}: {place} is not a known key; expected {expected}")


def table_of(raw: Mapping[str, Any], key: str, file: str, where: str = "") -> dict[str, Any]:
    """The sub-table under `key`, {} where absent."""
    value = raw.get(key, {})
    if not isinstance(value, dict):
        raise fail(file, f"{where}{key}", value, "a table")
    return value


def text_of(raw: Mapping[str, Any], key: str, file: str, where: str = "") -> str:
    """The text under `key`, "" where absent."""
    value = raw.get(key, "")
    if not isinstance(value, str):
        raise fail(file, f"{where}{key}", value, "text")
    return value


def flag_of(raw: Mapping[str, Any], key: str, file: str, where: str = "") -> bool:
    """The flag under `key`, False where absent."""
    value = raw.get(key, False)
    if not isinstance(value, bool):
        raise fail(file, f"{where}{key}", value, "true or false")
    return value


def topology_of(raw: Mapping[str, Any], file: str, where: str) -> Any:
    """The topology of a tier, checked."""
    value = raw.get("topology")
    if value not in TOPOLOGIES:
        raise fail(file, f"{where}.topology", value, "one of " + ", ".join(TOPOLOGIES))
    return value


def figure_of(raw: object, key: Key, file: str, where: str) -> Figure:
    """Check `{ value = .., source = "..", doubt = ".." }` against its key."""
    if not isinstance(raw, dict):
        raise fail(file, where, raw, "a table { value = .., source = .., doubt = .. }")
    refuse_unknown(raw, ("value", "source", "doubt"), file, where)
    for part in ("value", "source", "doubt"):
        if part not in raw:
            raise XlaCostError(f"{file}: {where} has no {part}; expected value, source and doubt")
    for part in ("source", "doubt"):
        if not isinstance(raw[part], str) or not raw[part].strip():
            raise fail(file, f"{where}.{part}", raw[part], 'text (a doubt may be "none")')
    return Figure(
        where, value_of(raw["value"], key, file, where), raw["source"], raw["doubt"], file
    )


def value_of(value: object, key: Key, file: str, where: str) -> Any:
    """Check one value against its key."""
    if key.kind in ("integers", "flags", "words"):
        if not isinstance(value, list) or not value:
            raise fail(file, where, value, "a list that is not empty")
        if key.kind == "words":
            return tuple(_algorithm(v, file, f"{where}[{i}]") for i, v in enumerate(value))
        one = Key("integer" if key.kind == "integers" else "flag", key.minimum, key.above)
        return tuple(value_of(v, one, file, f"{where}[{i}]") for i, v in enumerate(value))
    if key.kind == "flag":
        if not isinstance(value, bool):
            raise fail(file, where, value, "true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise fail(file, where, value, f"a number {key.expected}")
    if not math.isfinite(value):
        raise fail(file, where, value, f"finite and {key.expected}")
    if key.kind == "integer" and not isinstance(value, int):
        raise fail(file, where, value, f"a whole number {key.expected}")
    if value < key.minimum or (key.above and value == key.minimum) or value > key.maximum:
        raise fail(file, where, value, key.expected)
    return value


def fit_of(
    raw: Mapping[str, Any], file: str, where: str
) -> tuple[dict[str, Figure], dict[str, Any]]:
    """The figures of `[tiers.collectives.KIND]`, and its record.

    Numbers may stand alone beside one `source` for all of them, as calibration writes them.
    """
    refuse_unknown(raw, (*FIT, *RECORD, "source"), file, where)
    source = text_of(raw, "source", file, f"{where}.")
    figures = {}
    for name, key in FIT.items():
        if name not in raw:
            continue
        value = raw[name]
        if not isinstance(value, dict):
            value = {"value": value, "source": source, "doubt": "see the record of the fit"}
        figures[name] = figure_of(value, key, file, f"{where}.{name}")
    require(figures, FIT, file, where)
    record: dict[str, Any] = {
        name: value_of(raw[name], key, file, f"{where}.{name}")
        for name, key in RECORD.items()
        if name in raw
    }
    return figures, {**record, "source": source or figures["efficiency"].source}


def _algorithm(value: object, file: str, where: str) -> str:
    if not isinstance(value, str) or value not in ALGORITHMS:
        raise fail(file, where, value, "one of " + ", ".join(ALGORITHMS))
    return value


def figures_of(
    raw: Mapping[str, Any], keys: Mapping[str, Key], file: str, where: str
) -> dict[str, Figure]:
    """Every figure present in a table, checked. Missing ones are looked for after merging."""
    refuse_unknown(raw, keys, file, where)
    return {name: figure_of(value, keys[name], file, f"{where}.{name}")
            for name, value in raw.items()}  # fmt: skip


def require(found: Mapping[str, Any], keys: Mapping[str, Key], file: str, where: str) -> None:
    """Raise for the first required key that is missing."""
    for name, key in keys.items():
        if key.required and name not in found:
            raise XlaCostError(f"{file}: {where}.{name} is missing; expected a number")
