"""`xla-cost plans`: the sharding plans."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def plans(
    json: Annotated[str, typer.Option("--json", help="write JSON to a file, - for standard output")]
    = "",
) -> None:  # fmt: skip
    """List the sharding plans: which mesh axes each logical axis is split over."""
    from xla_cost.models.plan import PLANS

    rows: list[dict[str, Any]] = [
        {
            "name": plan.name,
            "description": plan.description,
            "rules": {logical: list(axes) for logical, axes in plan.rules},
            "remainder": plan.remainder,
            "axis_order": list(plan.axis_order),
            "automatic": plan.automatic,
        }
        for plan in PLANS.values()
    ]
    if json:
        from xla_cost.jsonio import write_json

        write_json(json, {"plans": rows})
    if json != "-":
        from xla_cost.show.console import console

        out = console()
        for row in rows:
            out.print(f"[bold]{row['name']}[/bold]  {row['description']}")
            rules = "; ".join(f"{name} {'+'.join(axes)}" for name, axes in row["rules"].items())
            out.print(f"  [dim]{rules}; axes slowest first {''.join(row['axis_order'])}[/dim]")
