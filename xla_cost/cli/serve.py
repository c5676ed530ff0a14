"""`xla-cost serve`: simulate a serving system, what its users feel and what holds it back."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xla_cost.errors import XlaCostError

if TYPE_CHECKING:
    from xla_cost.serving.assemble import Assembled
    from xla_cost.serving.results import ServeResult
    from xla_cost.serving.spec import ServeSpec

Named = list[tuple[str, "ServeResult"]]


def serve(
    spec: Annotated[Path | None, typer.Argument(
        help="a scenario as TOML, see docs/serving.md; default: --scenario study")] = None,
    scenario: Annotated[str, typer.Option(help="a ready scenario: study")] = "",
    concurrency: Annotated[int, typer.Option(help="requests in flight at most")] = 0,
    requests: Annotated[int, typer.Option(help="requests measured")] = 0,
    seed: Annotated[int | None, typer.Option(help="seed of arrivals and lengths")] = None,
    machine: Annotated[str, typer.Option(help="machine of all model workers")] = "",
    against: Annotated[list[str], typer.Option(help="another machine; may be repeated")] = [],  # noqa: B006
    policy: Annotated[str, typer.Option(
        help="study scenario: study or calibrated costs")] = "study",
    optimise: Annotated[bool, typer.Option(
        "--optimise", help="search workers, meshes and batch limits for goodput")] = False,
    ttft: Annotated[float, typer.Option(help="with --optimise: TTFT limit in seconds")] = 0.0,
    tpot_ms: Annotated[float, typer.Option(help="with --optimise: TPOT limit in ms")] = 0.0,
    out: Annotated[Path | None, typer.Option(help="folder for figures (PNG, SVG) and NPZ")] = None,
    json: Annotated[str, typer.Option("--json", help="write JSON to a file, - for standard output")]
    = "",
    series: Annotated[bool, typer.Option("--series", help="occupancy over time in the JSON")]
    = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="no tables")] = False,
) -> None:  # fmt: skip
    """Simulate serving on one machine or several, request by request."""
    if optimise:
        _optimise(machine, against, policy, ttft, tpot_ms, out, json, quiet)
        return
    asked = _spec(spec, scenario, concurrency, requests, seed, policy)
    machines = [machine, *against]
    built, results = [], []
    for name in machines:
        system, result = _run(asked, name)
        built.append(system)
        results.append((name or "as specified", result))
    study = scenario == "study" and len(results) == 2
    if json:
        _write(json, built, results, series, study)
    if out is not None:
        _figures(out, asked, built, results, scenario, policy, machines)
    if json != "-" and not quiet:
        _show(built, results, study)


def _spec(
    path: Path | None, scenario: str, concurrency: int, requests: int, seed: int | None, policy: str
) -> ServeSpec:
    from xla_cost.policy import policy as policy_of
    from xla_cost.serving.spec import read_spec
    from xla_cost.serving.study import study_spec

    for name, value in (("concurrency", concurrency), ("requests", requests)):
        if value < 0:
            raise XlaCostError(f"--{name} {value}: expected a whole number of at least 1")
    if path is not None:
        if scenario:
            raise XlaCostError(f"--scenario {scenario}: given with {path}; expected one of both")
        asked = read_spec(path)
        if concurrency:
            asked = replace(asked, load=replace(asked.load, in_flight=concurrency))
    else:
        if scenario not in ("", "study"):
            raise XlaCostError(f"--scenario {scenario!r}: unknown; expected study")
        policy_of(policy)
        asked = study_spec(concurrency or 2048, policy)
    if requests:
        asked = replace(asked, load=replace(asked.load, requests=requests))
    if seed is not None:
        asked = replace(asked, load=replace(asked.load, seed=seed))
    return asked


def _run(asked: ServeSpec, machine: str) -> tuple[Assembled, ServeResult]:
    from xla_cost.serving.assemble import assemble
    from xla_cost.serving.results import summarise
    from xla_cost.serving.simulate import simulate

    built = assemble(asked, machine, note=_note)
    return built, summarise(built.system, simulate(built.system, asked.load), asked.slo)


def _note(what: str) -> None:
    print(f"pricing {what}", file=sys.stderr)


def _write(place: str, built: list[Assembled], results: Named, series: bool, study: bool) -> None:
    from xla_cost.jsonio import write_json
    from xla_cost.provenance import provenance
    from xla_cost.serving.result_io import to_json

    entries = [
        {
            "machine": name,
            **to_json(result, series),
            "curve_error": system.worst_error,
            "curve_checks": [
                {"phase": c.phase, "batch": c.batch, "length": c.length, "fresh_s": c.fresh_s,
                 "curve_s": c.curve_s, "error": c.error}
                for c in system.checks
            ],
            "pools": [
                {"role": p.role, "workers": p.workers, "devices": p.devices,
                 "kv_tokens": p.kv_tokens,
                 "max_batch": p.max_batch if p.decodes and p.max_batch < 1 << 30 else None,
                 "token_budget": p.token_budget if p.prefills else None,
                 "made_from": dict(p.curves.provenance)}
                for p in system.system.pools
            ],
        }
        for (name, result), system in zip(results, built, strict=True)
    ]  # fmt: skip
    answer: dict[str, Any] = {**entries[0], "against": entries[1:]}
    if study:
        answer["study"] = _study_json(results)
    answer["provenance"] = provenance(sys.argv[1:])
    write_json(place, answer)


def _study_json(results: Named) -> list[dict[str, Any]]:
    from xla_cost.serving.study import changes

    return [
        {"what": c.what, "change": c.change, "study": [c.study_low, c.study_high],
         "outside_by": c.deviation}
        for c in changes(results[0][1], results[1][1])
    ]  # fmt: skip


def _show(built: list[Assembled], results: Named, study: bool) -> None:
    from xla_cost.serving.result_io import table
    from xla_cost.serving.study import STUDY_P99_TTFT_S, change_lines, changes

    print(table(results))
    for (name, _), system in zip(results, built, strict=True):
        if system.checks:
            print(
                f"curves, {name}: within {system.worst_error:.2%} of "
                f"{len(system.checks)} fresh points"
            )
    if study:
        print()
        print("\n".join(change_lines(changes(results[0][1], results[1][1]))))
        print(
            "the study's p99 TTFT at 2048 in flight: "
            f"{STUDY_P99_TTFT_S[0]} s copper, {STUDY_P99_TTFT_S[1]} s photonic"
        )


def _figures(
    out: Path, asked: ServeSpec, built: list[Assembled], results: Named, scenario: str,
    policy: str, machines: list[str],
) -> None:  # fmt: skip
    from xla_cost.serving.export import export_npz
    from xla_cost.serving.figures import occupancy_figure, study_figures

    out.mkdir(parents=True, exist_ok=True)
    files = occupancy_figure(results, out)
    for (name, _), system in zip(results, built, strict=True):
        files.append(export_npz(system.system, out / f"{name.replace(' ', '-')}.npz"))
    if scenario == "study" and len(results) == 2:
        from xla_cost.serving.study import CONCURRENCY

        runs = {}
        for limit in CONCURRENCY:
            load = replace(asked.load, in_flight=limit, warmup=limit)
            at = replace(asked, load=load)
            runs[limit] = (_run(at, machines[0])[1], _run(at, machines[1])[1])
        files += study_figures(runs, out)
    for path in files:
        print(f"wrote {path}", file=sys.stderr)


def _optimise(
    machine: str, against: list[str], policy: str, ttft: float, tpot_ms: float,
    out: Path | None, json: str, quiet: bool,
) -> None:  # fmt: skip
    from xla_cost.jsonio import write_json
    from xla_cost.serving.optimise import optimise, optimise_json, optimise_table

    fabrics = [machine or "b300", *(against or ([] if machine else ["b300-photonic"]))]
    found = {
        name: optimise(name, policy, ttft or 10.0, (tpot_ms or 25.0) / 1e3, note=_note)
        for name in fabrics
    }
    if json:
        write_json(json, optimise_json(found))
    if out is not None:
        from xla_cost.serving.figures import pareto_figure

        out.mkdir(parents=True, exist_ok=True)
        for path in pareto_figure(found, out):
            print(f"wrote {path}", file=sys.stderr)
    if json != "-" and not quiet:
        print(optimise_table(found))
