"""`xla-cost inspect`: what HLO text computes and moves, and with a machine what that costs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xla_cost.errors import XlaCostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from xla_cost.program import Program


def inspect(
    path: Annotated[str, typer.Argument(
        help="HLO text, - for standard input, or a folder of *.hlo and *.txt files")],
    machine: Annotated[str, typer.Option(help="price it on this machine, see `machines`")] = "",
    policy: Annotated[str, typer.Option(help="calibrated or study")] = "calibrated",
    strict: Annotated[bool, typer.Option(
        "--strict", help="exit 1 for an unpriced op, an unknown trip count, an unread line or "
        "HLO before partitioning")]
    = False,
    json: Annotated[str, typer.Option("--json", help="write JSON to a file, - for standard output")]
    = "",
    top: Annotated[int, typer.Option(help="rows of the longer tables")] = 8,
) -> None:  # fmt: skip
    """What any HLO text computes and moves."""
    from xla_cost.inspect import failure, is_understood, programs, summary

    if top < 1:
        raise XlaCostError(f"--top {top}: expected a whole number of at least 1")
    price = _pricing(machine, policy)  # mistakes before anything is read
    modules: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    for file, module, program in programs(path):
        if isinstance(program, XlaCostError):
            failed.append(failure(file, program))
            continue
        found = summary(program, module, str(file))
        if price is not None:
            try:
                found["price"] = price(program)
            except XlaCostError as error:
                if not os.path.isdir(path):
                    raise
                found["price"] = {"error": str(error)}
        modules.append(found)
    if not modules and failed:
        more = f" (and {len(failed) - 1} more files)" if len(failed) > 1 else ""
        raise XlaCostError(f"{failed[0]['file']}: {failed[0]['error']}{more}")
    if json:
        from xla_cost.jsonio import write_json
        from xla_cost.provenance import provenance

        made_by = provenance(sys.argv[1:])
        write_json(json, {"modules": modules, "failed": failed, "provenance": made_by})
    if json != "-":
        from xla_cost.show.console import console

        _show(console(), modules, failed, top)
    if strict and (failed or not all(map(is_understood, modules))):
        raise typer.Exit(1)


def _pricing(machine: str, policy: str) -> Callable[[Program], dict[str, Any]] | None:
    """What prices a program as JSON; None without a machine, which then takes no policy."""
    from xla_cost.policy import CALIBRATED
    from xla_cost.policy import policy as policy_of

    rules = policy_of(policy)
    if not machine:
        if rules != CALIBRATED:
            raise XlaCostError(f"--policy {policy}: only with --machine; nothing is priced here")
        return None
    from xla_cost.machine import load
    from xla_cost.price import price
    from xla_cost.price.as_json import result_json

    on = load(machine)
    return lambda program: result_json(price(program, on, rules))


def _show(
    out: Console, modules: list[dict[str, Any]], failed: list[dict[str, str]], top: int
) -> None:
    if len(modules) == 1:
        _one(out, modules[0], top)
    else:
        _many(out, modules)
    for row in failed:
        out.print(f"not read: {row['file']}: {row['error']}", soft_wrap=True, markup=False)


def _many(out: Console, modules: list[dict[str, Any]]) -> None:
    """One row per module."""
    from xla_cost.show.console import table
    from xla_cost.units import bytes_text, flops_text, seconds_text

    priced = any("latency_s" in found.get("price", {}) for found in modules)
    last = "latency" if priced else "read"
    made = table("file", "devices", "matrix", "moved", "sent", "loops", last)
    for found in modules:
        sent = sum(c["payload_bytes"] * c["executions"] for c in found["collectives"])
        unknown = "?" if found["unknown_trip_counts"] else ""
        latency = found.get("price", {}).get("latency_s")
        made.add_row(
            _cut(os.path.basename(found["file"]), 28),
            str(found["devices"]) + ("" if found["partitioned"] else "*"),
            flops_text(found["flops"]),
            bytes_text(found["bytes_read"] + found["bytes_written"]),
            bytes_text(sent),
            f"{len(found['loops'])}{unknown}",
            (seconds_text(latency) if latency is not None else "-")
            if priced
            else f"{_floor_percent(found['coverage'])}%",
        )
    out.print(made)
    out.print(
        "\nPer device, one run of the entry. matrix: matrix FLOPs; moved: operand and result\n"
        "bytes of every op, unfused; sent: operand bytes of collectives; ?: a loop runs as\n"
        "often as data say, counted once."
        + ("" if priced else " read: share of instructions understood.")
        + (
            ""
            if all(found["partitioned"] for found in modules)
            else "\n*: before partitioning, figures are of the whole program, not per device."
        )
    )


def _one(out: Console, found: dict[str, Any], top: int) -> None:
    """One module in full."""
    from xla_cost.show.console import table
    from xla_cost.units import bytes_text, flops_text

    out.print(f"[bold]{_cut(found['name'], 60)}[/bold]  {found['devices']} devices")
    made = table("", "per device" if found["partitioned"] else "whole program")
    by_format = ", ".join(f"{k} {flops_text(v)}" for k, v in found["flops_by_format"].items() if v)
    by_opcode = ", ".join(f"{k} {flops_text(v)}" for k, v in found["flops_by_opcode"].items() if v)
    made.add_row("matrix", flops_text(found["flops"]))
    if found["flops_min"] != found["flops"]:
        made.add_row("  cheapest branches", flops_text(found["flops_min"]))
    made.add_row("vector", flops_text(found["vector_flops"]))
    made.add_row("read, unfused", bytes_text(found["bytes_read"]))
    made.add_row("written, unfused", bytes_text(found["bytes_written"]))
    made.add_row("arguments", bytes_text(found["parameter_bytes"]))
    made.add_row("results", bytes_text(found["output_bytes"]))
    made.add_row("peak of intermediates", bytes_text(found["peak_live_bytes"]))
    out.print(made)
    for text in (by_format, by_opcode):
        if text:
            out.print(f"  {text}")
    _show_price(out, found.get("price"))
    _show_collectives(out, found["collectives"], top)
    loops = [f"{loop['name']} x {_trips(loop['trips'])}" for loop in found["loops"]]
    if loops:
        more = f" and {len(loops) - top} more" if len(loops) > top else ""
        out.print("\nloops: " + ", ".join(loops[:top]) + more, markup=False)
    _show_doubts(out, found, top)


def _show_price(out: Console, price: dict[str, Any] | None) -> None:
    from xla_cost.units import joules_text, seconds_text

    if not price:
        return
    if "error" in price:
        out.print(f"\nnot priced: {price['error']}", soft_wrap=True, markup=False)
        return
    out.print(
        f"\non {price['machine']}: [bold]{seconds_text(price['latency_s'])}[/bold]; "
        f"compute {seconds_text(price['compute_s'])}, network {seconds_text(price['comm_s'])}, "
        f"of it exposed {seconds_text(price['exposed_comm_s'])}; {joules_text(price['energy_j'])}"
    )


def _show_collectives(out: Console, rows: list[dict[str, Any]], top: int) -> None:
    from xla_cost.show.console import table
    from xla_cost.units import bytes_text

    if not rows:
        return
    dearest = sorted(rows, key=lambda c: -c["payload_bytes"] * c["executions"])
    made = table("collective", "devices", "operand", "times", "total", "scope")
    for row in dearest[:top]:
        kind = row["kind"] + ("*" if "priced_as" in row else "")
        made.add_row(
            f"{kind} {row['format']}",
            str(row["group_size"]),
            bytes_text(row["payload_bytes"]),
            str(row["executions"]),
            bytes_text(row["payload_bytes"] * row["executions"]),
            _cut("/".join(row["scope"].split("/")[-2:]), 20),
        )
    out.print()
    out.print(made)
    if len(rows) > top:
        out.print(f"and {len(rows) - top} smaller ones, see --json or --top")
    if any("priced_as" in row for row in dearest[:top]):
        out.print("* compilers make a reduce-scatter of it, and it is priced as one")


def _show_doubts(out: Console, found: dict[str, Any], top: int) -> None:
    out.print(
        f"\nunderstood: {_floor_percent(found['coverage'])}% of the instructions, "
        f"{_floor_percent(found['coverage_bytes'])}% of the bytes"
    )
    for row in found["unpriced"][:top]:
        out.print(f"unpriced {row['name']}: {row['note']}", soft_wrap=True, markup=False)
    if len(found["unpriced"]) > top:
        out.print(f"and {len(found['unpriced']) - top} more unpriced, see --json")
    for text in found["warnings"][:top]:
        out.print(f"note: {text}", soft_wrap=True, markup=False)


def _trips(trips: int | None) -> str:
    return "? (depends on data)" if trips is None else str(trips)


def _floor_percent(share: float) -> str:
    """99.9, never 100 unless it is."""
    return "100" if share >= 1.0 else f"{int(share * 1000) / 10:g}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
