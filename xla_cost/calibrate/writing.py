"""Putting fits into a machine file: only its own tables change, everything else stays."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from xla_cost.calibrate.collectives import TierFit
from xla_cost.calibrate.machine_fit import Calibration
from xla_cost.errors import XlaCostError
from xla_cost.jsonio import write_text
from xla_cost.kernel_time.efficiency import FitRecord

_HEADER = re.compile(r"^\[\[?\s*([A-Za-z0-9_.\-\s]+?)\s*\]\]?\s*(#.*)?$")
_NOTE = "# written by `xla-cost calibrate`, which replaces this table"


def write(path: Path, calibration: Calibration) -> None:
    """Replace the fitted tables of the file at `path`, atomically."""
    try:
        before = path.read_text(encoding="utf-8")
    except OSError as error:
        raise XlaCostError(f"{path}: cannot be read ({error}); expected a TOML file") from None
    after = rewrite(before, calibration, path.name)
    write_text(path, after)


def rewrite(text: str, calibration: Calibration, file: str = "machine file") -> str:
    """`text` with `[efficiency]` and the first tier's `[tiers.collectives]` replaced.

    Comments and tables that are not ours stay byte for byte. Raises XlaCostError when the
    result would say anything else than before outside those tables.
    """
    kept: list[str] = []
    comments: list[str] = []  # inside our tables, and perhaps about the table that follows
    tier = -1
    own_tables = False
    tier_end = 0
    for line in text.splitlines(keepends=True):
        header = _HEADER.match(line.rstrip("\n"))
        if header:
            name = header.group(1).replace(" ", "")
            tier += line.startswith("[[") and name == "tiers"
            inner_fit = tier == 0 and name.startswith("tiers.collectives")
            own_tables = inner_fit or name == "efficiency" or name.startswith("efficiency.")
        if own_tables:
            is_comment = line.startswith("#") and line.strip() != _NOTE
            comments = [*comments, line] if is_comment else []
        else:
            kept += [*comments, line]
            comments = []
            if tier == 0 and (not header or line.startswith("[[") or name.startswith("tiers")):
                tier_end = len(kept) if line.strip() else tier_end
    if tier < 0:
        raise XlaCostError(f"{file}: no [[tiers]] table; expected at least one")
    head, tail = "".join(kept[:tier_end]), "".join(kept[tier_end:])
    tiers = "".join(_collective(fit) for fit in calibration.collectives)
    result = head + tiers + tail.rstrip("\n") + "\n" + _efficiency(calibration)
    _check_rest(text, result, file)
    return result


def _check_rest(before: str, after: str, file: str) -> None:
    def rest(text: str) -> Any:
        content = tomllib.loads(text)
        content.pop("efficiency", None)
        content["tiers"][0].pop("collectives", None)
        return content

    if rest(before) != rest(after):
        raise XlaCostError(f"{file}: its layout is unusual; expected one header per line")


def _efficiency(calibration: Calibration) -> str:
    kernels = dict(calibration.kernels)
    parts = ["\n[efficiency]\n" + _NOTE + "\n"]
    stream = kernels.pop(("quantize", ""), None)
    if stream is not None:
        parts.append(f"launch_us = {stream.floor_us!r}\n")
    parts.append(f"source = {_text(calibration.source)}\n")
    if stream is not None:
        parts.append(_kernel("memory", "", stream))
    parts += [_kernel(kind, number_format, fit) for (kind, number_format), fit in kernels.items()]
    return "".join(parts)


def _kernel(kind: str, number_format: str, fit: Any) -> str:
    where = f"efficiency.{kind}.{number_format}" if number_format else f"efficiency.{kind}"
    return f"\n[{where}]\n" + _numbers(fit, fit.__slots__)


def _collective(fit: TierFit) -> str:
    names = ["floor_us", "efficiency", "half_MB", "ramp", *(["devices"] if fit.devices else [])]
    return f"\n[tiers.collectives.{fit.kind}]\n{_NOTE}\n" + _numbers(fit, names)


def _numbers(fit: Any, names: Iterable[str]) -> str:
    """The figures of a fit and of its record, one a line."""
    lines = [f"{name} = {getattr(fit, name)!r}" for name in names if name != "record"]
    for name in FitRecord.__slots__:
        value = getattr(fit.record, name)
        if value is not None:
            lines.append(f"{name} = {_text(value) if isinstance(value, str) else repr(value)}")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
