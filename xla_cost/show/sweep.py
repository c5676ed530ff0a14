"""A sweep on the terminal: one line per point."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from xla_cost.show.console import table
from xla_cost.sweep.run import SweepResult
from xla_cost.sweep.spec import Point
from xla_cost.units import seconds_text


def show_sweep(out: Console, result: SweepResult, files: Sequence[Path]) -> None:
    """The rows, how many were computed now, and where the tables are."""
    made = table("model", "seq", "batch", "devices", "machine", "policy", "mesh", "latency")
    for row in result.rows:
        latency = row.get("latency_s")
        made.add_row(
            row["model"],
            str(row["seq"]),
            str(row["batch"]),
            str(row["devices"]),
            row["machine"],
            row["policy"],
            row.get("mesh", "none"),
            "-" if latency is None else seconds_text(latency),
        )
    out.print(made)
    out.print(f"{result.computed} points computed, {result.reused} were there already")
    for path in files:
        out.print(f"  {path}", markup=False)


def show_states(out: Console, states: Sequence[tuple[Point, bool]]) -> None:
    """Every point of a sweep and whether its row is there."""
    made = table("model", "seq", "batch", "devices", "machine", "policy", "state")
    for point, done in states:
        made.add_row(
            point.model,
            str(point.seq),
            str(point.batch),
            str(point.devices),
            point.machine,
            point.policy,
            "done" if done else "missing",
        )
    out.print(made)
    count = sum(done for _, done in states)
    out.print(f"{count} points done, {len(states) - count} missing")
