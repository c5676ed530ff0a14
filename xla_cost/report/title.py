"""One line that says what a result is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xla_cost.report.result_file import ResultFile


def title_of(result: ResultFile) -> str:
    """Such as `r1 prefill on 288 devices: b300 against b300-photonic`."""
    data = result.data
    maker = {
        "estimate": _estimate, "search": _search, "sweep": _sweep, "demo": _demo,
        "serve": _serve, "study": _study, "inspect": _inspect,
    }.get(result.kind)  # fmt: skip
    return maker(data) if maker else f"xla-cost: {result.name.rsplit('/', 1)[-1]}"


def _estimate(data: Mapping[str, Any]) -> str:
    machines = " against ".join(one["machine"] for one in data["results"][:2])
    words = [str(data[key]) for key in ("model", "phase") if isinstance(data.get(key), str)]
    mesh = data.get("mesh")
    devices = mesh.get("devices") if isinstance(mesh, dict) else None
    where = f" on {devices} devices" if isinstance(devices, int) else ""
    return f"{' '.join(words) or 'Estimate'}{where}: {machines}"


def _search(data: Mapping[str, Any]) -> str:
    asked = data.get("input")
    asked = asked if isinstance(asked, dict) else {}
    words = " ".join(str(asked[key]) for key in ("model", "phase") if key in asked)
    where = f" on {asked['devices']} devices" if "devices" in asked else ""
    return f"Search{': ' if words else ''}{words}{where}, {data.get('machine', '')}".rstrip(", ")


def _sweep(data: Mapping[str, Any]) -> str:
    models = ", ".join(dict.fromkeys(row["model"] for row in data["rows"]))
    return f"Sweep of {models or 'nothing'}: {len(data['rows'])} points"


def _demo(data: Mapping[str, Any]) -> str:
    return f"The reference study's points: {len(data['points'])} estimates"


def _study(data: Mapping[str, Any]) -> str:
    machines = ", ".join(dict.fromkeys(row["machine"] for row in data["ratios"]))
    return f"The reference study reproduced: {len(data['ratios'])} cells, {machines}"


def _serve(data: Mapping[str, Any]) -> str:
    return f"Serving: {data['requests']:g} requests"


def _inspect(data: Mapping[str, Any]) -> str:
    return f"{len(data['modules'])} HLO modules"
