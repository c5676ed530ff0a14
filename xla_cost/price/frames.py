"""Estimates as data frames and as HTML for notebooks."""

from __future__ import annotations

from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING

from xla_cost.errors import XlaCostError
from xla_cost.price.tables import CollectiveCost, OpCost, ScopeCost
from xla_cost.price.timeline import Event
from xla_cost.units import bytes_text, seconds_text

if TYPE_CHECKING:
    import pandas as pd

    from xla_cost.price.compare import Comparison
    from xla_cost.price.estimate import Estimate

_TABLES: dict[str, type[OpCost | CollectiveCost | ScopeCost | Event]] = {
    "ops": OpCost,
    "collectives": CollectiveCost,
    "by_scope": ScopeCost,
    "scope_tree": ScopeCost,
    "timeline": Event,
}


def frame(estimate: Estimate, table: str) -> pd.DataFrame:
    """One row per entry of the table, one column per field. Raises XlaCostError for no table."""
    import pandas as pd

    if table not in _TABLES:
        raise XlaCostError(f"table {table!r} is unknown; expected one of {sorted(_TABLES)}")
    rows = estimate.timeline.events if table == "timeline" else getattr(estimate, table)
    columns = [field.name for field in fields(_TABLES[table])]
    return pd.DataFrame([[getattr(row, c) for c in columns] for row in rows], columns=columns)


def html(estimate: Estimate) -> str:
    """A small table with the headline and the cost by part; every name escaped."""
    memory = estimate.memory
    head = [
        ("latency", f"{seconds_text(estimate.latency_s)}, bound by {estimate.bound_by}"),
        ("compute", seconds_text(estimate.compute_s)),
        ("network", seconds_text(estimate.comm_s)),
        ("exposed network", seconds_text(estimate.exposed_comm_s)),
        ("memory", f"{bytes_text(memory.needed_bytes)} of {bytes_text(memory.capacity_bytes)}"),
        ("policy", estimate.policy.name),
    ]
    title = f"{estimate.program.name} on {estimate.program.devices} x {estimate.machine.name}"
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in head)
    parts = "".join(
        f"<tr><td>{escape(row.scope)}</td><td>{escape(seconds_text(row.compute_s))}</td>"
        f"<td>{escape(seconds_text(row.comm_s))}</td>"
        f"<td>{escape(seconds_text(row.exposed_comm_s))}</td></tr>"
        for row in estimate.by_scope
    )
    return (
        f"<table><caption>{escape(title)}</caption>{rows}</table>"
        "<table><thead><tr><th>part</th><th>compute</th><th>network</th><th>exposed</th></tr>"
        f"</thead><tbody>{parts}</tbody></table>"
    )


def comparison_html(comparison: Comparison) -> str:
    """Ratio, factors and the parts that make it, both machines side by side; names escaped."""
    first, second = comparison.first, comparison.second
    factors = " x ".join(f"{name} {value:.2f}" for name, value in comparison.split.items())
    title = (
        f"{first.program.name}: {second.machine.name} is {comparison.ratio:.2f} times as fast as "
        f"{first.machine.name}{f' = {factors}' if factors else ''}"
    )
    rows = [
        ("latency", first.latency_s, second.latency_s),
        ("compute", first.compute_s, second.compute_s),
        ("network", first.comm_s, second.comm_s),
        ("exposed network", first.exposed_comm_s, second.exposed_comm_s),
    ]
    body = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(seconds_text(one))}</td>"
        f"<td>{escape(seconds_text(two))}</td></tr>"
        for name, one, two in rows
    )
    saved = "".join(
        f"<tr><td>{escape(row.scope)}</td><td>{escape(seconds_text(row.saved_s))}</td></tr>"
        for row in comparison.by_scope[:8]
    )
    return (
        f"<table><caption>{escape(title)}</caption><thead><tr><th></th>"
        f"<th>{escape(first.machine.name)}</th><th>{escape(second.machine.name)}</th></tr></thead>"
        f"<tbody>{body}</tbody></table>"
        f"<table><thead><tr><th>part</th><th>saved</th></tr></thead><tbody>{saved}</tbody></table>"
    )
