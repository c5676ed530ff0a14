"""The command table. A command lives in `xla_cost/cli/NAME.py` as a function `NAME`.

Only the module of the chosen command is imported, and typer only with it: `--help` must answer
at once. A command whose module is not there is not listed.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from xla_cost.errors import XlaCostError

#: command name -> one-line help; the module and the function carry the same name
COMMANDS = {
    "demo": "the main job: R1 prefill at 72 and 288 devices, copper against photons",
    "estimate": "partition a model or a JAX function with XLA and price it on machines",
    "inspect": "what any HLO text computes and moves, and with a machine what it costs",
    "search": "the best mesh and plan for a number of devices",
    "sweep": "a cross product of models, machines, lengths and devices, each point searched",
    "study": "the reference study reproduced: tables, figures, deviations",
    "serve": "discrete-event simulation of serving",
    "check": "CI gate: exit 1 when a partitioned program changed for the worse",
    "report": "a result file as one self-contained web page",
    "explain": "a result file in a few sentences: what bounds it, what would help",
    "rerun": "a result file computed again: the same numbers",
    "calibrate": "fit efficiencies to measured tables",
    "validate": "predicted against measured",
    "machines": "list machines, or print one with the source of every figure",
    "models": "list models, or print one with its parameter counts",
    "plans": "list the sharding plans",
}

#: Characters of an error message; words of the input appear in it.
_LONGEST = 1200


def _exists(name: str) -> bool:
    place = Path(__file__).parent / name
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


class _LazyGroup(click.Group):
    """Imports a command's module only when that command is asked for, not to list it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if _exists(name)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS or not _exists(cmd_name):
            return None
        import typer
        from typer.main import get_command

        module = importlib.import_module(f"xla_cost.cli.{cmd_name}")
        single: Any = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        single.command(name=cmd_name, help=COMMANDS[cmd_name])(getattr(module, cmd_name))
        made: Any = get_command(single)  # of typer's own copy of click
        hints = typing.get_type_hints(getattr(module, cmd_name))
        _take_text_as_it_is(made.get_params(ctx), hints)
        command: click.Command = made
        return command


def _take_text_as_it_is(parameters: Iterable[Any], hints: Mapping[str, Any]) -> None:
    """Spare typer the import of pydantic, a quarter of what `inspect` takes, where it can.

    What is no text was not typed but is the default of the command's function; text for a
    parameter that is text needs no reading. All else, and what is missing, is typer's.
    """
    for parameter in parameters:
        if parameter.nargs == 1 and not getattr(parameter, "multiple", False):
            is_text = hints.get(parameter.name) in (str, str | None)
            parameter.process_value = _shortened(parameter, parameter.process_value, is_text)


def _shortened(
    parameter: Any, whole: Callable[[Any, Any], Any], is_text: bool
) -> Callable[[Any, Any], Any]:
    def process(context: Any, value: Any) -> Any:
        if (value is None and parameter.required) or (isinstance(value, str) and not is_text):
            return whole(context, value)
        return parameter.callback(context, parameter, value) if parameter.callback else value

    return process


@click.group(
    cls=_LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="What a sharded program costs on copper and on photons, from the HLO that XLA makes.",
)
@click.option("--version", is_flag=True, help="Print the version and exit.")
@click.pass_context
def app(ctx: click.Context, version: bool) -> None:
    """The `xla-cost` command."""
    if version:
        from importlib.metadata import version as installed

        click.echo(f"xla-cost {installed('xla-cost')}")
    elif ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit code.

    0 success, 1 a check does not hold or a search finds nothing that can run, 2 bad input (one
    line on standard error), 130 Ctrl-C, 141 the reader of our output went away.
    """
    try:
        # not app.main, which hides a closed pipe behind an exit with 1
        given = sys.argv[1:] if arguments is None else list(arguments)
        sys.argv[1:] = given  # what results record as the command that made them
        with app.make_context("xla-cost", given) as context:
            result = app.invoke(context)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except XlaCostError as error:
        return _refuse(str(error))
    except (KeyboardInterrupt, click.Abort):
        print("xla-cost: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # `xla-cost .. | head`: whatever is left in the buffer has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _refuse(f"standard output: cannot be written ({error.strerror})")
    except Exception as error:
        # typer carries its own copy of click, whose exceptions are not click's
        if hasattr(error, "format_message"):
            return _refuse(_usage(error))
        if hasattr(error, "exit_code"):
            return int(error.exit_code)
        raise


def _refuse(message: str) -> int:
    line = " ".join(message.split())
    if len(line) > _LONGEST:  # somebody's file has a word of a megabyte
        line = f"{line[: _LONGEST // 2]} .. {line[-_LONGEST // 2 :]}"
    print(f"xla-cost: {line}", file=sys.stderr)
    return 2


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    where = context.command_path.removeprefix("xla-cost").strip() if context else ""
    message = error.format_message().rstrip(".")
    hint = f"; see xla-cost {where + ' ' if where else ''}--help"
    return f"{where + ': ' if where else ''}{message[:1].lower()}{message[1:]}{hint}"
