"""The command table. A command lives in `xla_cost/cli/NAME.py` as a function `NAME`.

Only the signature of the chosen command is imported, so `--help` and `inspect` start fast.
"""

from __future__ import annotations

import importlib
from typing import Any

import click
import typer
from typer.core import TyperGroup
from typer.main import get_command

#: command name -> one-line help; the module and the function carry the same name
COMMANDS = {
    "demo": "the main job: R1 prefill at 72 and 288 devices, copper against photons",
    "estimate": "partition a model or a JAX function with XLA and price it on machines",
    "inspect": "what any HLO text computes and moves, and with a machine what it costs",
    "machines": "list machines, or print one with the source of every figure",
    "models": "list models, or print one with its parameter counts",
    "plans": "list the sharding plans",
}


class _LazyGroup(TyperGroup):
    """Imports a command's module only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"xla_cost.cli.{cmd_name}")
        single: Any = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name=cmd_name, help=COMMANDS[cmd_name])(getattr(module, cmd_name))
        return get_command(single)
