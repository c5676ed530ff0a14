"""`xla-cost estimate`: partition a model or a JAX function with XLA and price it on machines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xla_cost.errors import XlaCostError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xla_cost.findings import Finding
    from xla_cost.price import Estimate
    from xla_cost.program import Program

    #: the program, what was asked (for the head of the JSON), facts about it, what to mend
    Asked = tuple[Program, dict[str, Any], Mapping[str, Any], tuple[Finding, ...]]

_HLO_SUFFIXES = (".hlo", ".txt", ".hlo_text")
_MODEL_ONLY = ("mesh", "seq", "batch")


def estimate(
    model: Annotated[str, typer.Argument(
        help="a model (see `xla-cost models`), a config.json, module:function, or an HLO file")],
    mesh: Annotated[str, typer.Option(help="devices along x, y, z: 2x144x1")] = "",
    machine: Annotated[str, typer.Option(help="a machine (see `xla-cost machines`) or a .toml")]
    = "b300",
    against: Annotated[list[str], typer.Option(help="another machine; may be repeated")] = [],  # noqa: B006
    seq: Annotated[int, typer.Option(help="tokens of each sequence; decode: KV cache slots")] = 0,
    batch: Annotated[int, typer.Option(help="sequences")] = 0,
    phase: Annotated[str, typer.Option(help="prefill or decode")] = "prefill",
    number_format: Annotated[str, typer.Option(
        "--format", help="fp4, fp8, bf16, fp8+fp4, or with changes: fp4:dispatch=fp8")] = "fp4",
    plan: Annotated[str, typer.Option(help="sharding plan, see `xla-cost plans`")] = "study",
    policy: Annotated[str, typer.Option(help="calibrated or study")] = "calibrated",
    attention: Annotated[str, typer.Option(
        help="flash or plain; default: plain under study, else flash")] = "",
    microbatches: Annotated[int, typer.Option(help="parts of the batch inside a layer")] = 1,
    capacity_factor: Annotated[float, typer.Option(help="expert buffers over balanced load")]
    = 1.0,
    imbalance: Annotated[float, typer.Option(
        help="load of the busiest expert rank over the mean")] = 1.0,
    placement: Annotated[str, typer.Option(help="mesh axes, slowest first: xyz")] = "",
    target: Annotated[str, typer.Option(help="cpu, gpu:h100, tpu:v5e-16, ..")] = "cpu",
    strict: Annotated[bool, typer.Option(
        "--strict", help="exit 1 for an unpriced op, an unknown trip count or a compiler warning")]
    = False,
    json: Annotated[str, typer.Option("--json", help="write JSON to a file, - for standard output")]
    = "",
    trace: Annotated[str, typer.Option(help="timeline for Perfetto; X.json: trace events")] = "",
    top: Annotated[int, typer.Option(help="rows of the longer tables")] = 8,
    quiet: Annotated[bool, typer.Option("--quiet", help="no tables, only the files asked for")]
    = False,
) -> None:  # fmt: skip
    """Partition a model or a JAX function with XLA and price it on one machine or several."""
    from xla_cost.findings import costed
    from xla_cost.machine import load
    from xla_cost.policy import policy as policy_of
    from xla_cost.price import compare, price

    _positive(top=top, microbatches=microbatches)
    if not imbalance >= 1.0:
        raise XlaCostError(f"--imbalance {imbalance:g}: expected a number of at least 1")
    changes = {} if imbalance == 1.0 else {"expert_imbalance": imbalance}
    rules = policy_of(policy, **changes)
    machines = [load(name) for name in (machine, *against)]  # mistakes before the compiler runs
    options = {
        "mesh": mesh, "seq": seq, "batch": batch, "phase": phase, "format": number_format,
        "plan": plan, "attention": attention, "microbatches": microbatches,
        "capacity_factor": capacity_factor, "placement": placement, "target": target,
    }  # fmt: skip
    program, header, facts, found = _program(model, options, policy)
    if imbalance > program.devices:
        raise XlaCostError(
            f"--imbalance {imbalance:g}: expected at most {program.devices}, the number of ranks: "
            "one that has all the load"
        )
    estimates = [price(program, one, rules) for one in machines]
    comparison = compare(estimates[0], estimates[1]) if len(estimates) > 1 else None
    found = costed(found, estimates[0])
    answer = {"model": model, **header, "policy": rules.name}
    if json or trace:
        _write_files(json, trace, answer, estimates, comparison, facts, found)
    if json != "-" and not quiet:
        _show(answer, estimates, comparison, facts, found, top)
    if strict:
        _refuse_findings(estimates[0])


def _positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise XlaCostError(f"--{name} {value}: expected a whole number of at least 1")


def _program(model: str, options: Mapping[str, Any], policy: str) -> Asked:
    if model.endswith(".py"):
        raise XlaCostError(f"estimate {model}: names no function; expected {model}:function")
    named = model.endswith(_HLO_SUFFIXES) or ":" in model
    for name in _MODEL_ONLY if named else ():
        if options[name]:
            raise XlaCostError(f"--{name}: only for models; {model} brings its own shapes and mesh")
    if model.endswith(_HLO_SUFFIXES):
        return _from_file(model)
    if ":" in model:
        return _from_function(model, options)
    return _from_model(model, options, policy)


def _from_model(model: str, options: Mapping[str, Any], policy: str) -> Asked:
    from xla_cost.findings import finding_from_json
    from xla_cost.programs import ATTENTION, Request, model_program, parse_mesh
    from xla_cost.show.progress import working

    sizes = {"seq": options["seq"], "batch": options["batch"]}
    if model == "tiny":  # the model of the smoke test needs no thought
        sizes = {"seq": options["seq"] or 16, "batch": options["batch"] or 8}
    for name in _MODEL_ONLY:
        if not sizes.get(name, options[name]):
            raise XlaCostError(f"estimate {model}: --{name} is missing; expected {_example(name)}")
    for name, value in sizes.items():
        if value < 1:
            raise XlaCostError(f"--{name} {value}: expected a whole number of at least 1")
    request = Request(
        model=model,
        mesh=parse_mesh(options["mesh"]),
        seq=sizes["seq"],
        batch=sizes["batch"],
        phase=options["phase"],
        format=options["format"],
        plan=options["plan"],
        attention=options["attention"] or ATTENTION[policy],
        microbatches=options["microbatches"],
        capacity_factor=options["capacity_factor"],
        placement=options["placement"],
        target=options["target"],
    )
    with working(f"partitioning {model} for {request.devices} devices"):
        found = model_program(request)
    header = {
        "phase": request.phase,
        "seq": request.seq,
        "batch": request.batch,
        "format": request.format,
        "plan": request.plan,
        "attention": request.attention,
        "microbatches": request.microbatches,
        "capacity_factor": request.capacity_factor,
        "placement": request.placement or "xyz",
        "target": request.target,
        "mesh": {
            "axes": ["x", "y", "z"],
            "shape": list(request.mesh),
            "devices": request.devices,
        },
    }
    facts = {**found.facts, "from_cache": found.from_cache}
    mend = tuple(finding_from_json(fields) for fields in facts.pop("findings", ()))
    return found.program, header, facts, mend


def _from_function(place: str, options: Mapping[str, Any]) -> Asked:
    from xla_cost.api import lower_target
    from xla_cost.show.progress import working
    from xla_cost.target import load_target

    with working(f"partitioning {place}"):
        lowered = lower_target(load_target(place), options["target"])
    program, axes = lowered.program, lowered.partitioned.mesh
    header = {
        "target": options["target"],
        "mesh": {
            "axes": [name for name, _ in axes],
            "shape": [size for _, size in axes],
            "devices": program.devices,
        },
    }
    return program, header, {}, lowered.findings


def _from_file(path: str) -> Asked:
    from xla_cost.findings import replicated_arguments
    from xla_cost.hlo.parser import read_text
    from xla_cost.programs import program_of_text

    text = read_text(path)
    program = program_of_text(text, Path(path).name)
    header = {"mesh": {"axes": ["devices"], "shape": [program.devices],
                       "devices": program.devices}}  # fmt: skip
    return program, header, {}, replicated_arguments(text)


def _example(name: str) -> str:
    return {"mesh": "--mesh 2x144x1", "seq": "--seq 131072", "batch": "--batch 64"}[name]


def _write_files(
    json: str, trace: str, answer: dict[str, Any], estimates: list[Estimate], comparison: Any,
    facts: Mapping[str, Any], found: tuple[Finding, ...],
) -> None:  # fmt: skip
    from xla_cost.findings import finding_json
    from xla_cost.jsonio import write_json
    from xla_cost.price.as_json import estimate_json
    from xla_cost.provenance import provenance

    if json:
        made_by = provenance(sys.argv[1:], {"facts": dict(facts)})
        answer = {**answer, "findings": [finding_json(finding) for finding in found]}
        write_json(json, estimate_json(answer, estimates, comparison, made_by))
    if trace.endswith(".json"):
        from xla_cost.price.trace import write_trace as write_json_trace

        write_json_trace(trace, estimates[0])
    elif trace:
        from xla_cost.report.trace import write_trace

        write_trace(trace, estimates[0])


def _show(
    answer: Mapping[str, Any], estimates: list[Estimate], comparison: Any,
    facts: Mapping[str, Any], found: tuple[Finding, ...], top: int,
) -> None:  # fmt: skip
    from xla_cost.show.console import console
    from xla_cost.show.estimate import (
        assumptions,
        show_estimates,
        show_findings,
        show_warnings,
    )

    out, notes = console(), console(sys.stderr)
    out.print(f"[bold]{_title(answer, estimates[0])}[/bold]")
    out.print()
    show_estimates(out, estimates, comparison, top)
    out.print()
    show_findings(out, found, top)
    for line in assumptions(estimates[0].program, estimates[0].policy, facts):
        out.print(f"[dim]assumed[/dim] {line}")
    warnings = dict.fromkeys(line for one in estimates for line in one.warnings)
    told = {finding.text for finding in found}
    show_warnings(notes, [line for line in warnings if line not in told])


def _title(answer: Mapping[str, Any], first: Estimate) -> str:
    words = [str(answer["model"])]
    if "phase" in answer:
        words.append(f"{answer['phase']} {answer['seq']} x {answer['batch']}, {answer['format']}")
    mesh = answer["mesh"]
    shape = "x".join(map(str, mesh["shape"]))
    words.append(f"mesh {shape} ({mesh['devices']} devices)")
    if "plan" in answer:
        words.append(f"plan {answer['plan']}, {answer['attention']} attention")
    return ", ".join([*words, f"policy {first.policy.name}"])


def _refuse_findings(first: Estimate) -> None:
    """One line on standard error and exit 1 where the program is not wholly understood."""
    found = [*first.program.warnings]
    found += [f"{op.opcode} {op.name} is not priced" for op, _ in first.unpriced]
    found += [f"loop {loop.name} has no known trip count" for loop in first.graph.unknown_loops]
    if found:
        line = f"--strict: {len(found)} findings, expected none; first: {found[0]}"
        print(f"xla-cost: {' '.join(line.split())}", file=sys.stderr)
        raise typer.Exit(1)
