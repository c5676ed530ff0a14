"""`xla-cost serve`: simulate a serving system, what its users feel and what holds it back."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xla_cost.errors import XlaCostError
from xla_cost.jsonio import check_file, make_folder

if TYPE_CHECKING:
    from xla_cost.serving.assemble import Assembled, Note
    from xla_cost.serving.results import ServeResult
    from xla_cost.serving.spec import ServeSpec

Named = list[tuple[str, "ServeResult"]]


def serve(
    spec: Annotated[Path | None, typer.Argument(
        help="a scenario as TOML, see docs/serving.md; default: --scenario study")] = None,
    scenario: Annotated[str, typer.Option(help="a ready scenario: study")] = "",
    concurrency: Annotated[int | None, typer.Option(help="requests in flight at most")] = None,
    requests: Annotated[int | None, typer.Option(help="requests measured")] = None,
    seed: Annotated[int | None, typer.Option(help="seed of arrivals and lengths")] = None,
    machine: Annotated[str, typer.Option(help="machine of all model workers")] = "",
    against: Annotated[list[str], typer.Option(help="another machine; may be repeated")] = [],  # noqa: B006
    policy: Annotated[str, typer.Option(
        help="of the study scenario: study (default) or calibrated costs")] = "",
    optimise: Annotated[bool, typer.Option(
        "--optimise", help="search workers, meshes and batch limits for goodput")] = False,
    ttft: Annotated[float | None, typer.Option(
        help="with --optimise: TTFT limit in seconds, default 10")] = None,
    tpot_ms: Annotated[float | None, typer.Option(
        help="with --optimise: TPOT limit in ms, default 25")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for figures (PNG, SVG) and NPZ")] = None,
    json: Annotated[str, typer.Option("--json", help="write JSON to a file, - for standard output")]
    = "",
    series: Annotated[bool, typer.Option("--series", help="occupancy over time in the JSON")]
    = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="no tables, no progress")] = False,
) -> None:  # fmt: skip
    """Simulate serving on one machine or several, request by request."""
    for name, number, least in (
        ("concurrency", concurrency, 1), ("requests", requests, 1), ("seed", seed, 0),
    ):  # fmt: skip
        if number is not None and number < least:
            raise XlaCostError(f"--{name} {number}: expected a whole number of at least {least}")
    for name, limit in (("ttft", ttft), ("tpot-ms", tpot_ms)):
        if limit is not None and not optimise:
            raise XlaCostError(f"--{name} {limit:g}: given without --optimise; expected beside it")
        if limit is not None and not 0 < limit < float("inf"):
            raise XlaCostError(f"--{name} {limit:g}: expected a finite number above 0")
    if scenario not in ("", "study"):
        raise XlaCostError(f"--scenario {scenario!r}: unknown; expected study")
    if series and not json:
        raise XlaCostError("--series: given without --json; expected beside it")
    check_file(json, "--json")
    note = None if quiet else _note
    if optimise:
        for name, value in (("SPEC", spec), ("--concurrency", concurrency),
                            ("--requests", requests), ("--seed", seed),
                            ("--series", series or None)):  # fmt: skip
            if value is not None:
                raise XlaCostError(
                    f"--optimise: beside {name} ({value}), which it does not look at; "
                    "expected machines, policy and limits only"
                )
        limits = (10.0 if ttft is None else ttft, (25.0 if tpot_ms is None else tpot_ms) / 1e3)
        _optimise(machine, against, policy or "study", limits, out, json, quiet, note)
        return
    asked = _spec(spec, scenario, concurrency, requests, seed, policy)
    machines = [machine, *against]
    _check_machines(spec, asked, machines)
    if out is not None:
        make_folder(out, "--out")
    where = spec.name if spec else ""
    built, results = [], []
    for name in machines:
        system, result = _run(asked, name, where, note)
        built.append(system)
        results.append((name or "as specified", result))
    study = scenario == "study" and len(results) == 2
    if json:
        _write(json, built, results, series, study)
    if out is not None:
        files = _files(out, asked, built, results, machines if study else None, note)
        if note:
            for path in files:
                note(f"wrote {path}")
    if json != "-" and not quiet:
        _show(built, results, study)


def _spec(
    path: Path | None, scenario: str, concurrency: int | None, requests: int | None,
    seed: int | None, policy: str,
) -> ServeSpec:  # fmt: skip
    from xla_cost.policy import policy as policy_of
    from xla_cost.serving.spec import read_spec
    from xla_cost.serving.study import study_spec

    if path is not None:
        if scenario:
            raise XlaCostError(f"--scenario {scenario}: given with {path}; expected one of both")
        if policy:
            raise XlaCostError(
                f"--policy {policy}: given with {path}; expected the key policy in its pools"
            )
        asked = read_spec(path)
        if requests is not None and asked.load.trace is not None:
            raise XlaCostError(
                f"--requests {requests}: given with a trace, which is measured to its end; "
                "expected none"
            )
        if concurrency is not None:
            asked = replace(asked, load=replace(asked.load, in_flight=concurrency))
    else:
        chosen = policy or "study"
        policy_of(chosen)
        asked = study_spec(2048 if concurrency is None else concurrency, chosen)
    if requests is not None:
        asked = replace(asked, load=replace(asked.load, requests=requests))
    if seed is not None:
        asked = replace(asked, load=replace(asked.load, seed=seed))
    return asked


def _check_machines(path: Path | None, asked: ServeSpec, machines: list[str]) -> None:
    """Refuse machines that no pool runs on, and unknown ones before anything is computed."""
    from xla_cost.machine import load
    from xla_cost.serving.lowered import WorkerModel

    named = [name for name in machines if name]
    if named and not any(isinstance(pool.worker, WorkerModel) for pool in asked.pools):
        option = "--machine" if machines[0] else "--against"
        raise XlaCostError(
            f"{option} {named[0]}: all pools of {path} have given curves, which no machine "
            "changes; expected a pool with a model"
        )
    for name in named:
        load(name)


def _run(
    asked: ServeSpec, machine: str, where: str, note: Note | None
) -> tuple[Assembled, ServeResult]:
    """Assemble and simulate; what is wrong with the scenario is said with its file, `where`."""
    from xla_cost.serving.assemble import assemble
    from xla_cost.serving.results import summarise
    from xla_cost.serving.simulate import simulate

    try:
        built = assemble(asked, machine, note=note)
        run = simulate(built.system, asked.load)
    except XlaCostError as mistake:
        raise XlaCostError(f"{where}: {mistake}" if where else str(mistake)) from mistake
    return built, summarise(built.system, run, asked.slo)


def _note(what: str) -> None:
    print(what, file=sys.stderr)


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


def _files(
    out: Path, asked: ServeSpec, built: list[Assembled], results: Named,
    study: list[str] | None, note: Note | None,
) -> list[Path]:  # fmt: skip
    """Figures and curves in `out`; those of the study's scenario with its two machines, `study`."""
    from xla_cost.serving.export import export_npz
    from xla_cost.serving.figures import occupancy_figure, study_figures

    files = occupancy_figure(results, out)
    for (name, _), system in zip(results, built, strict=True):
        files.append(export_npz(system.system, out / f"{name.replace(' ', '-')}.npz"))
    if study:
        from xla_cost.serving.study import CONCURRENCY

        runs = {}
        for limit in CONCURRENCY:
            load = replace(asked.load, in_flight=limit, warmup=limit)
            at = replace(asked, load=load)
            runs[limit] = (_run(at, study[0], "", note)[1], _run(at, study[1], "", note)[1])
        files += study_figures(runs, out)
    return files


def _optimise(
    machine: str, against: list[str], policy: str, limits: tuple[float, float],
    out: Path | None, json: str, quiet: bool, note: Note | None,
) -> None:  # fmt: skip
    """`limits`: TTFT and TPOT in seconds."""
    from xla_cost.jsonio import write_json
    from xla_cost.machine import load
    from xla_cost.policy import policy as policy_of
    from xla_cost.serving.optimise import optimise, optimise_json, optimise_table

    fabrics = [machine or "b300", *(against or ([] if machine else ["b300-photonic"]))]
    policy_of(policy)
    for name in fabrics:
        load(name)
    if out is not None:
        make_folder(out, "--out")
    found = {name: optimise(name, policy, *limits, note=note) for name in fabrics}
    if json:
        write_json(json, optimise_json(found))
    if out is not None:
        from xla_cost.serving.figures import pareto_figure

        for path in pareto_figure(found, out):
            if note:
                note(f"wrote {path}")
    if json != "-" and not quiet:
        print(optimise_table(found))
