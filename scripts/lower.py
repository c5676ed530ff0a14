"""Write the partitioned HLO of a model and what it computes and moves.

    python scripts/lower.py r1 --mesh 2x144x1 --seq 131072 --batch 64 --out DIR

DIR receives `MODEL.hlo` (the program of one device right after SPMD partitioning),
`breakdown.json` (FLOPs by format, loops, collectives, unpriced ops, FLOPs by scope) and
`breakdown.txt` (the same for people).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from xla_cost.errors import XlaCostError
from xla_cost.jsonio import write_json, write_text
from xla_cost.price.as_json import program_json
from xla_cost.program import Program
from xla_cost.programs import Request, model_hlo, parse_mesh, program_of_text
from xla_cost.units import bytes_text, flops_text


def main(arguments: list[str] | None = None) -> int:
    """Run the script; 0 on success, 2 on bad input."""
    options = _parser().parse_args(arguments)
    try:
        lower(_request(options), Path(options.out))
    except XlaCostError as error:
        print(f"lower.py: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def lower(request: Request, out: Path) -> Program:
    """Partition `request` and write the three files into `out`; returns the ledger."""
    hlo, built = model_hlo(request)
    warnings = tuple(str(warning) for warning in hlo.warnings)
    program = program_of_text(hlo.text, f"{request.model} {request.phase}", warnings)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise XlaCostError(f"{out}: cannot be made a folder ({error.strerror})") from error
    stem = Path(request.model).stem
    breakdown = {
        "name": program.name,
        "devices": program.devices,
        "mesh": list(request.mesh),
        "weights_bytes": built.weights_bytes,
        "kv_cache_bytes": built.kv_cache_bytes,
        "padding": dict(built.padding),
        "notes": list(built.notes),
        "warnings": list(program.warnings),
        "seconds": {"trace": hlo.trace_s, "lower": hlo.lower_s, "partition": hlo.partition_s},
        "flops_by_scope": _flops_by_scope(program),
        **program_json(program),
        "provenance": dict(hlo.provenance),
    }
    text = _text(breakdown)
    write_text(out / f"{stem}.hlo", hlo.text)
    write_json(out / "breakdown.json", breakdown)
    write_text(out / "breakdown.txt", text)
    print(text, end="")
    print(f"written to {out}: {stem}.hlo, breakdown.json, breakdown.txt")
    return program


def _flops_by_scope(program: Program) -> dict[str, float]:
    found: dict[str, float] = {}
    for op, times in program.walk():
        if op.flops:
            found[op.scope] = found.get(op.scope, 0.0) + op.flops * times
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _text(breakdown: dict[str, Any]) -> str:
    lines = [
        f"{breakdown['name']} on {breakdown['devices']} devices, "
        f"mesh {'x'.join(map(str, breakdown['mesh']))}; everything per device",
        f"weights {bytes_text(breakdown['weights_bytes'])}, "
        f"KV cache {bytes_text(breakdown['kv_cache_bytes'])}",
        "",
        "matrix FLOPs by format",
        *(f"  {k:6} {flops_text(v)}" for k, v in breakdown["flops_by_format"].items()),
        "",
        "matrix FLOPs by scope",
        *(f"  {flops_text(v):>12}  {k}" for k, v in breakdown["flops_by_scope"].items()),
        "",
        "collectives: kind, group x groups, payload of one execution, executions, scope",
    ]
    for row in breakdown["collectives"]:
        group = f"{row['group_size']} x {row['groups']}"
        lines.append(
            f"  {row['kind']:20} {group:>10} {bytes_text(row['payload_bytes']):>9} "
            f"{row['executions']:>5}  {row['scope']}"
        )
    loops = ", ".join(f"{loop['name']} x {loop['trips']}" for loop in breakdown["loops"])
    lines += ["", f"loops: {loops or 'none'}", f"coverage {breakdown['coverage']:.2%}"]
    lines += [f"not priced: {row['opcode']} {row['name']}" for row in breakdown["unpriced"]]
    lines += [f"warning: {line}" for line in breakdown["warnings"]]
    lines += [f"note: {line}" for line in breakdown["notes"]]
    return "\n".join(lines) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="a model name or a Hugging Face config.json")
    parser.add_argument("--mesh", required=True, help="devices along x, y, z: 2x144x1")
    parser.add_argument("--out", required=True, help="folder to write into")
    parser.add_argument("--seq", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--phase", default="prefill")
    parser.add_argument("--format", default="fp4")
    parser.add_argument("--plan", default="study")
    parser.add_argument("--attention", default="flash")
    parser.add_argument("--microbatches", type=int, default=1)
    parser.add_argument("--capacity-factor", type=float, default=1.0)
    parser.add_argument("--placement", default="", help="mesh axes, slowest first")
    parser.add_argument("--target", default="cpu")
    return parser


def _request(options: argparse.Namespace) -> Request:
    return Request(
        model=options.model,
        mesh=parse_mesh(options.mesh),
        seq=options.seq,
        batch=options.batch,
        phase=options.phase,
        format=options.format,
        plan=options.plan,
        attention=options.attention,
        microbatches=options.microbatches,
        capacity_factor=options.capacity_factor,
        placement=options.placement,
        target=options.target,
    )


if __name__ == "__main__":
    sys.exit(main())
