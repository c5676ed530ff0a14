"""`xla-cost search`: the best mesh, plan and placement for a number of devices."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer


def search(
    model: Annotated[str, typer.Argument(help="A model name, or a Hugging Face config.json.")],
    devices: Annotated[int, typer.Option(help="Number of devices.")],
    machine: Annotated[str, typer.Option(help="Machine name or TOML file.")],
    seq: Annotated[int, typer.Option(help="Tokens per sequence; decode: the context.")],
    batch: Annotated[int, typer.Option(help="Sequences.")],
    against: Annotated[str | None, typer.Option(help="A second machine to search on.")] = None,
    phase: Annotated[str, typer.Option(help="prefill or decode.")] = "prefill",
    format: Annotated[str, typer.Option(help="fp4, fp8, bf16 or fp8+fp4.")] = "fp4",
    plan: Annotated[str, typer.Option(help="Plans, comma-separated, or all.")] = "study",
    policy: Annotated[str, typer.Option(help="calibrated or study.")] = "calibrated",
    attention: Annotated[str | None, typer.Option(help="flash or plain.")] = None,
    microbatches: Annotated[str, typer.Option(help="Counts to try, comma-separated.")] = "1",
    placements: Annotated[
        bool, typer.Option("--placements", help="Try every order of the axes.")
    ] = False,
    top: Annotated[int, typer.Option(help="How many to rank.", min=1)] = 10,
    ignore_memory: Annotated[
        bool, typer.Option("--ignore-memory", help="Rank what does not fit, too.")
    ] = False,
    processes: Annotated[int | None, typer.Option(help="Worker processes.", min=0)] = None,
    cluster: Annotated[str | None, typer.Option(help="An existing dask scheduler.")] = None,
    json: Annotated[str | None, typer.Option(help="Write JSON here; - for stdout.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Rank every mesh shape of the device count under the plans asked for; exit 1 if none runs."""
    from xla_cost.jsonio import check_file, write_json
    from xla_cost.machine import load
    from xla_cost.parallel import Workers
    from xla_cost.price import policy as find_policy
    from xla_cost.programs import ATTENTION, Request, check_devices, workload_of
    from xla_cost.provenance import provenance
    from xla_cost.search.candidates import space
    from xla_cost.search.engine import search as run_search
    from xla_cost.search.model_problem import ModelProblem
    from xla_cost.search.result import to_json
    from xla_cost.show.console import console
    from xla_cost.show.progress import progress_bar
    from xla_cost.show.search import show_search

    check_file(json, "--json")
    machines = [load(name) for name in (machine, against) if name is not None]
    assumptions = find_policy(policy)
    candidates = space(
        devices,
        _plans(plan),
        microbatches=_counts(microbatches),
        all_placements=placements,
    )
    request = Request(
        model=model,
        mesh=(devices, 1, 1),
        seq=seq,
        batch=batch,
        phase=phase,
        format=format,
        attention=attention or ATTENTION.get(assumptions.name, "flash"),
    )
    check_devices(devices)
    workload_of(request)  # one refusal, not one for each mesh
    problem = ModelProblem(request)
    results = []
    with Workers(processes=processes, address=cluster) as workers:
        for each in machines:
            with progress_bar(f"searching on {each.name}", quiet=quiet) as progress:
                results.append(
                    run_search(
                        problem,
                        candidates,
                        each,
                        assumptions,
                        top=top,
                        need_fit=not ignore_memory,
                        workers=workers,
                        progress=progress,
                    )
                )
    answer: dict[str, Any] = to_json(request, results, top)
    answer["provenance"] = provenance(sys.argv[1:])
    if json is not None:
        write_json(json, answer)
    if json != "-":
        show_search(console(), results, top)
    if not all(result.ranking for result in results):
        raise typer.Exit(1)


def _plans(text: str) -> list[str]:
    from xla_cost.models import PLANS, get_plan

    if text == "all":
        # the other two reproduce readings of the study and lose to `study` wherever x > 1
        return [n for n, plan in PLANS.items() if not plan.automatic and not plan.hidden_gather]
    return list(dict.fromkeys(get_plan(name.strip()).name for name in text.split(",")))


def _counts(text: str) -> list[int]:
    from xla_cost.errors import XlaCostError

    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise XlaCostError(f"--microbatches {text!r}: expected counts of at least 1, such as 1,2,4")
    return list(dict.fromkeys(counts))
