"""`xla-cost models`: the shipped models, counted from their abstract parameters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer


def models(
    name: Annotated[str, typer.Argument(help="one model, or a config.json")] = "",
    json: Annotated[str, typer.Option("--json", help="write JSON to a file, - for standard output")]
    = "",
) -> None:  # fmt: skip
    """List models, or print one with its parameter counts."""
    from xla_cost.models import CONFIGS, get_config

    chosen = [get_config(name)] if name else list(CONFIGS.values())
    rows = [_row(config) for config in chosen]
    if json:
        from xla_cost.jsonio import write_json

        write_json(json, {"models": rows})
    if json != "-":
        _show(rows, details=bool(name))


def _row(config: Any) -> dict[str, Any]:
    from xla_cost.models.counts import count_parameters

    counted = count_parameters(config)
    return {
        "name": config.name,
        "parameters": counted.total,
        "active_parameters": counted.active,
        "kv_cache_elements_per_token": config.kv_cache_elements_per_token,
        "config": asdict(config),
    }


def _show(rows: list[dict[str, Any]], details: bool) -> None:
    from xla_cost.show.console import console, table

    out = console()
    made = table("model", "parameters", "active", "layers", "hidden", "heads", "experts")
    for row in rows:
        config = row["config"]
        made.add_row(
            row["name"], _billions(row["parameters"]), _billions(row["active_parameters"]),
            str(config["num_hidden_layers"]), str(config["hidden_size"]),
            str(config["num_attention_heads"]),
            f"{config['n_routed_experts']} / {config['num_experts_per_tok']}",
        )  # fmt: skip
    out.print(made)
    if details:
        out.print()
        for key, value in rows[0]["config"].items():
            out.print(f"  {key}: {value}")


def _billions(count: int) -> str:
    for unit, size in (("T", 1e12), ("B", 1e9)):
        if count >= size:
            return f"{count / size:.2f}{unit}" if unit == "T" else f"{count / size:.1f}{unit}"
    return f"{count / 1e6:.2f}M"
