"""TOML to `Machine`: find the file, follow `extends`, check everything, convert to SI."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from xla_cost.errors import XlaCostError
from xla_cost.kernel_time import from_table
from xla_cost.kernel_time.efficiency import FitRecord
from xla_cost.machine import schema
from xla_cost.machine.check import check_shapes
from xla_cost.machine.model import CollectiveFit, Figure, Machine, Tier

_TABLES = {
    "peak_TFLOPS": schema.PEAK,
    "memory": schema.MEMORY,
    "power": schema.POWER,
    "compute_pJ_per_FLOP": schema.FLOP_ENERGY,
}


@dataclass(frozen=True, slots=True)
class _RawTier:
    name: str
    topology: Any
    figures: dict[str, Figure]
    fits: dict[str, tuple[dict[str, Figure], dict[str, Any]]]
    file: str
    where: str


@dataclass(frozen=True, slots=True)
class _Sheet:
    """A file with its bases merged in, figures checked but not converted."""

    name: str
    file: str
    title: str = ""
    extends: str = ""
    inherits: str = ""
    speculative: bool = False
    tables: dict[str, dict[str, Figure]] = field(default_factory=dict)
    tiers: tuple[_RawTier, ...] = ()
    efficiency: dict[str, Any] = field(default_factory=dict)
    efficiency_file: str = ""
    directory: str = ""


def names() -> list[str]:
    """Names of the machines that come with the package, sorted."""
    return sorted(p.name[: -len(".toml")] for p in _folder().iterdir() if p.name.endswith(".toml"))


def load(name_or_path: str | Path) -> Machine:
    """The machine of that name, or the one a TOML file describes.

    A path is anything that ends in `.toml` or contains a `/`. Raises XlaCostError for an unknown
    name, an unreadable file or any figure that is missing, unknown or out of range.
    """
    text = str(name_or_path)
    if text.endswith(".toml") or "/" in text:
        return _machine(_read(Path(text), ()))
    return _load_packaged(text)


@lru_cache(maxsize=256)
def _load_packaged(name: str) -> Machine:
    return _machine(_read(_packaged(name, "machine"), ()))


def _folder() -> Path:
    return Path(str(files("xla_cost.hardware")))


def _packaged(name: str, asked_by: str) -> Path:
    if name not in names():
        raise XlaCostError(
            f"{asked_by}: {name!r} is unknown; expected one of {', '.join(names())} "
            "or a path to a .toml file"
        )
    return _folder() / f"{name}.toml"


def _base_path(base: str, path: Path, key: str) -> Path:
    """A base is looked for beside the file that names it under `key`, then in the package."""
    beside = path.parent / (base if base.endswith(".toml") else f"{base}.toml")
    return beside if beside.is_file() else _packaged(base, f"{path.name}: {key}")


def _read(path: Path, chain: tuple[Path, ...]) -> _Sheet:
    if path.resolve() in chain:
        loop = " -> ".join(p.stem for p in (*chain, path))
        raise XlaCostError(f"{path.name}: extends runs in a circle ({loop}); expected an end")
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or error
        raise XlaCostError(f"{path}: cannot be read ({reason}); expected a TOML file") from None
    except (ValueError, RecursionError) as error:  # also what a number of 5000 digits raises
        raise XlaCostError(f"{path.name}: not valid TOML ({error})") from None
    own = _sheet(raw, path)
    if not own.extends:
        return own
    base = _read(_base_path(own.extends, path, "extends"), (*chain, path.resolve()))
    return _merge(base, own)


def _sheet(raw: dict[str, Any], path: Path) -> _Sheet:
    """One file alone: every key known, every figure in range."""
    file = path.name
    schema.refuse_unknown(raw, schema.TOP, file, "")
    schema.text_of(raw, "notes", file)
    tables = {
        key: schema.figures_of(schema.table_of(raw, key, file), keys, file, key)
        for key, keys in _TABLES.items()
    }
    return _Sheet(
        name=path.stem,
        file=file,
        title=schema.text_of(raw, "title", file),
        extends=schema.text_of(raw, "extends", file),
        inherits=schema.text_of(raw, "inherits_efficiency_from", file),
        speculative=schema.flag_of(raw, "speculative", file),
        tables=tables,
        tiers=_raw_tiers(raw.get("tiers", []), file),
        efficiency=schema.table_of(raw, "efficiency", file),
        efficiency_file=file,
        directory=str(path.parent),
    )


def _raw_tiers(raw: object, file: str) -> tuple[_RawTier, ...]:
    if not isinstance(raw, list) or not all(isinstance(tier, dict) for tier in raw):
        raise schema.fail(file, "tiers", raw, "a list of tables, [[tiers]]")
    return tuple(_raw_tier(tier, file, f"tiers[{i}]") for i, tier in enumerate(raw))


def _raw_tier(raw: dict[str, Any], file: str, where: str) -> _RawTier:
    words = ("name", "topology", "collectives")
    schema.refuse_unknown(raw, (*words, *schema.TIER), file, where)
    name = schema.text_of(raw, "name", file, f"{where}.")
    if not name:
        raise XlaCostError(f"{file}: {where}.name is missing; expected text")
    figures = {k: v for k, v in raw.items() if k not in words}
    place = f"{where}.collectives"
    fits = schema.table_of(raw, "collectives", file, f"{where}.")
    schema.refuse_unknown(fits, schema.FIT_KINDS, file, place)
    return _RawTier(
        name,
        schema.topology_of(raw, file, where),
        schema.figures_of(figures, schema.TIER, file, where),
        {
            kind: schema.fit_of(
                schema.table_of(fits, kind, file, f"{place}."), file, f"{place}.{kind}"
            )
            for kind in fits
        },
        file,
        where,
    )  # fmt: skip


def _merge(base: _Sheet, own: _Sheet) -> _Sheet:
    """`own` over `base`: figures key by key, tiers and efficiencies as a whole."""
    return replace(
        own,
        title=own.title or base.title,
        inherits=own.inherits or base.inherits,
        speculative=own.speculative or base.speculative,
        tables={key: {**base.tables[key], **own.tables[key]} for key in _TABLES},
        tiers=own.tiers or base.tiers,
        efficiency=own.efficiency or base.efficiency,
        efficiency_file=own.file if own.efficiency else base.efficiency_file,
    )


def _machine(sheet: _Sheet) -> Machine:
    """A merged sheet, complete and consistent, in SI units."""
    file = sheet.file
    if not sheet.title:
        raise XlaCostError(f"{file}: title is missing; expected text")
    for key, keys in _TABLES.items():
        schema.require(sheet.tables[key], keys, file, key)
    if not sheet.tables["peak_TFLOPS"]:
        raise XlaCostError(f"{file}: peak_TFLOPS is missing; expected at least one number format")
    if not sheet.tiers:
        raise XlaCostError(f"{file}: tiers is missing; expected at least one [[tiers]] table")
    power = sheet.tables["power"]
    if power["max_W"].value < power["static_W"].value:
        raise schema.fail(file, "power.max_W", power["max_W"].value, ">= power.static_W")
    tiers = tuple(_tier(tier) for tier in sheet.tiers)
    check_shapes(tiers, [(tier.file, tier.where) for tier in sheet.tiers])
    source = _efficiency_source(sheet)
    efficiency, fit_file = sheet.efficiency, sheet.efficiency_file
    if source is not None:
        tiers = _inherit_fits(tiers, source)
        if not efficiency:
            efficiency, fit_file = dict(source.efficiency), f"{source.name}.toml"
    times = from_table(efficiency, where=f"{fit_file}: efficiency")
    inherited = sheet.inherits or (sheet.extends if fit_file != file and efficiency else "")
    si = {key: _to_si(sheet.tables[key], keys) for key, keys in _TABLES.items()}
    return Machine(
        name=sheet.name,
        title=sheet.title,
        peak_flops=si["peak_TFLOPS"],
        memory_capacity_bytes=si["memory"]["capacity_GB"],
        memory_bytes_per_s=si["memory"]["bandwidth_GBps"],
        tiers=tiers,
        static_w=si["power"]["static_W"],
        max_w=si["power"]["max_W"],
        flop_j=si["compute_pJ_per_FLOP"],
        kernel_times=replace(times, inherited_from=inherited) if inherited else times,
        efficiency=efficiency,
        speculative=sheet.speculative,
        extends=sheet.extends,
        inherits_efficiency_from=sheet.inherits,
        marks=_marks(sheet, inherited),
        figures=_figures(sheet),
    )


def _to_si(figures: Mapping[str, Figure], keys: Mapping[str, schema.Key]) -> dict[str, float]:
    return {name: figure.value * keys[name].to_si for name, figure in figures.items()}


def _tier(raw: _RawTier) -> Tier:
    schema.require(raw.figures, schema.TIER, raw.file, raw.where)
    value = {name: figure.value for name, figure in raw.figures.items()}

    def si(name: str, default: float = 0.0) -> float:
        return float(value.get(name, default)) * schema.TIER[name].to_si

    return Tier(
        name=raw.name,
        size=value["size"],
        topology=raw.topology,
        bandwidth_bytes_per_s=si("bandwidth_GBps"),
        latency_s=si("latency_us"),
        energy_j_per_byte=si("energy_pJ_per_bit"),
        efficiency=si("efficiency", 1.0),
        efficiency_given="efficiency" in value,
        dims=value.get("dims", ()),
        wrap=value.get(
            "wrap", (True,) * len(value.get("dims", ())) if raw.topology == "torus" else ()
        ),
        wrap_multiple=value.get("wrap_multiple", 0),
        circuit_ports=value.get("circuit_ports", 0),
        algorithms=value.get("algorithms", ()),
        reconfiguration_s=si("reconfiguration_us"),
        in_network_reduction=value.get("in_network_reduction", False),
        through_inner=value.get("through_inner", False),
        collectives=tuple(_fit(kind, *fit) for kind, fit in raw.fits.items()),
    )


def _fit(kind: str, figures: dict[str, Figure], record: dict[str, Any]) -> CollectiveFit:
    si = _to_si(figures, schema.FIT)
    return CollectiveFit(
        kind, si["floor_us"], si["efficiency"], si["half_MB"], si.get("ramp", 1.0),
        int(si.get("devices", 0)), FitRecord(**record),
    )  # fmt: skip


def _efficiency_source(sheet: _Sheet) -> Machine | None:
    if not sheet.inherits:
        return None
    path = Path(sheet.directory) / sheet.file
    source = _base_path(sheet.inherits, path, "inherits_efficiency_from")
    if source.resolve() == path.resolve():
        raise schema.fail(sheet.file, "inherits_efficiency_from", sheet.inherits, "another machine")
    found = _read(source, ())
    if found.inherits:
        raise schema.fail(
            sheet.file, "inherits_efficiency_from", sheet.inherits,
            f"a measured machine ({sheet.inherits} inherits from {found.inherits})",
        )  # fmt: skip
    return _machine(found)


def _inherit_fits(tiers: tuple[Tier, ...], source: Machine) -> tuple[Tier, ...]:
    """Efficiency and fits of the tier at the same level of `source`, where a tier has none.

    A half size is a latency in disguise (half_bytes / bandwidth), so it grows with bandwidth.
    """
    return tuple(
        _with_fits(tier, source.tiers[i], source.name) if i < len(source.tiers) else tier
        for i, tier in enumerate(tiers)
    )


def _with_fits(tier: Tier, measured: Tier, name: str) -> Tier:
    own = {fit.kind for fit in tier.collectives}
    scale = tier.bandwidth_bytes_per_s / measured.bandwidth_bytes_per_s
    taken = tuple(
        replace(fit, half_bytes=fit.half_bytes * scale, inherited_from=name)
        for fit in measured.collectives
        if fit.kind not in own
    )
    fitted = replace(tier, collectives=(*tier.collectives, *taken))
    if tier.efficiency_given:
        return fitted
    return replace(
        fitted, efficiency=measured.efficiency, efficiency_given=measured.efficiency_given
    )


def _marks(sheet: _Sheet, inherited: str) -> tuple[str, ...]:
    marks = []
    if sheet.speculative:
        marks.append(f"speculative: {sheet.name}")
    if inherited:
        marks.append(f"inherited: efficiencies of {inherited}")
    return tuple(marks)


def _figures(sheet: _Sheet) -> tuple[Figure, ...]:
    found = [figure for table in sheet.tables.values() for figure in table.values()]
    for tier in sheet.tiers:
        found.extend(tier.figures.values())
        for figures, _ in tier.fits.values():
            found.extend(figures.values())
    return tuple(found)
