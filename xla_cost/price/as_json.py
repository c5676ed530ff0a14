"""The JSON of an estimate. Numbers are SI and per device unless the name says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from xla_cost.price.experts import most_in_use
from xla_cost.price.timeline_json import timeline_json
from xla_cost.program import Body, Branch, Collective, Loop, Op, Program

if TYPE_CHECKING:
    from xla_cost.price.compare import Comparison
    from xla_cost.price.estimate import Estimate
    from xla_cost.price.tables import CollectiveCost, OpCost, ScopeCost

_OPS_SHOWN = 40


def program_json(program: Program) -> dict[str, Any]:
    """The `program` section: what is computed and moved, on any machine."""
    flops: dict[str, float] = {}
    collectives: dict[tuple[Any, ...], dict[str, Any]] = {}
    unpriced = []
    for op, times in program.walk():
        for matmul in op.matmuls:
            flops[matmul.format] = flops.get(matmul.format, 0.0) + matmul.flops * times
        if op.collective is not None:
            _count(collectives, op, op.collective, times)
        if op.kind == "unpriced":
            unpriced.append(_unpriced_json(op, times))
    return {
        "flops_by_format": dict(sorted(flops.items())),
        "loops": [{"name": loop.name, "trips": loop.trips} for loop in loops_of(program.entry)],
        "coverage": program.coverage,
        "coverage_bytes": program.coverage_bytes,
        "unpriced": unpriced,
        "collectives": list(collectives.values()),
        "parameter_bytes": program.parameter_bytes,
        "output_bytes": program.output_bytes,
        "provenance": dict(program.provenance),
    }


def loops_of(entry: Body) -> list[Loop]:
    """Every loop of a program, outer ones first."""
    found, pending = [], [entry]
    while pending:
        for node in pending.pop().nodes:
            if isinstance(node, Loop):
                found.append(node)
                pending.append(node.body)
            elif isinstance(node, Branch):
                pending.extend(node.bodies)
    return found


def result_json(estimate: Estimate) -> dict[str, Any]:
    """One entry of `results`."""
    machine, memory, energy = estimate.machine, estimate.memory, estimate.energy
    in_use = most_in_use(estimate.program, estimate.policy)
    return {
        "machine": machine.name,
        "machine_hash": machine.content_hash,
        "marks": list(machine.marks),
        "policy": estimate.policy.describe(),
        "experts_read_share": in_use.share if in_use else 1.0,
        "network_policy": asdict(estimate.network),
        "compute_s": estimate.compute_s,
        "comm_s": estimate.comm_s,
        "exposed_comm_s": estimate.exposed_comm_s,
        "latency_s": estimate.latency_s,
        "energy_j": energy.energy_j,
        "energy": {
            "compute_j": energy.compute_j,
            "network_j": dict(energy.network_j),
            "static_j": energy.static_j,
            "all_devices_j": energy.total_j,
        },
        "memory": {
            "weights_bytes": memory.weights_bytes,
            "kv_cache_bytes": memory.kv_cache_bytes,
            "peak_activation_bytes": memory.peak_activation_bytes,
            "capacity_bytes": memory.capacity_bytes,
            "fits": memory.fits,
        },
        "comm_s_by_tier": dict(estimate.comm_s_by_tier),
        "bound_by": estimate.bound_by,
        "bound_s": dict(estimate.bound_s),
        "by_scope": [scope_json(row) for row in estimate.by_scope],
        "scope_tree": [scope_json(row) for row in estimate.scope_tree],
        "collectives": [_collective_json(row) for row in estimate.collectives],
        "ops": [_op_json(row) for row in estimate.ops[:_OPS_SHOWN]],
        "ops_left_out": max(0, len(estimate.ops) - _OPS_SHOWN),
        "warnings": list(estimate.warnings),
        **timeline_json(estimate),
    }


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """`ratio`, `ratio_split` and what makes the difference."""
    return {
        "ratio": comparison.ratio,
        "ratio_split": dict(comparison.split),
        "difference": [
            {"scope": row.scope, "saved_s": row.saved_s, "compute_saved_s": row.compute_saved_s,
             "exposed_comm_saved_s": row.exposed_saved_s}
            for row in comparison.by_scope
        ],
        "difference_by_op": [
            {"name": row.name, "kind": row.kind, "scope": row.scope, "saved_s": row.saved_s}
            for row in comparison.ops[:10]
        ],
    }  # fmt: skip


def scope_json(row: ScopeCost) -> dict[str, Any]:
    """A row of `by_scope` and of `scope_tree`."""
    return {
        "scope": row.scope,
        "depth": row.depth,
        "compute_s": row.compute_s,
        "comm_s": row.comm_s,
        "exposed_comm_s": row.exposed_comm_s,
        "flops": row.flops,
    }


def _count(
    found: dict[tuple[Any, ...], dict[str, Any]], op: Op, collective: Collective, times: float
) -> None:
    """Adds executions of collectives that differ in nothing but their place in the text."""
    groups = collective.groups
    key = (
        collective.kind, groups.size, groups.count, collective.payload_bytes,
        collective.format, op.scope, collective.rewritten_from,
    )  # fmt: skip
    row = found.setdefault(
        key,
        {
            "kind": collective.kind,
            "group_size": groups.size,
            "groups": groups.count,
            "payload_bytes": collective.payload_bytes,
            "result_bytes": collective.result_bytes,
            "executions": 0,
            "scope": op.scope,
            "format": collective.format,
            "rewritten_from": collective.rewritten_from,
        },
    )
    row["executions"] += int(times)


def _unpriced_json(op: Op, times: float) -> dict[str, Any]:
    return {
        "name": op.name,
        "opcode": op.opcode,
        "scope": op.scope,
        "source": op.source,
        "note": op.note,
        "bytes": op.bytes_read + op.bytes_written,
        "executions": int(times),
    }


def _collective_json(row: CollectiveCost) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": row.kind,
        "group_size": row.group_size,
        "groups": row.groups,
        "payload_bytes": row.payload_bytes,
        "result_bytes": row.result_bytes,
        "format": row.format,
        "scope": row.scope,
        "source": row.source,
        "executions": int(row.executions),
        "seconds": row.seconds,
        "exposed_s": row.exposed_s,
        "algorithm": row.algorithm,
        "phases": [
            {"tier": tier, "seconds": seconds, "bytes": sent, "what": what}
            for tier, seconds, sent, what in row.phases
        ],
    }


def _op_json(row: OpCost) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": row.kind,
        "opcode": row.opcode,
        "scope": row.scope,
        "source": row.source,
        "executions": int(row.executions),
        "seconds": row.seconds,
        "critical_s": row.critical_s,
        "bound": row.bound,
        "flops": row.flops,
        "bytes": row.bytes,
        "format": row.format,
    }


def estimate_json(
    header: dict[str, Any],
    estimates: Sequence[Estimate],
    comparison: Comparison | None,
    provenance: dict[str, Any],
) -> dict[str, Any]:
    """The whole answer of `estimate --json`: `header` is what was asked.

    Without a second machine `ratio` is 1 and both shares are 1.
    """
    compared = (
        comparison_json(comparison)
        if comparison
        else {"ratio": 1.0, "ratio_split": {"bandwidth": 1.0, "radix": 1.0}}
    )
    return {
        **header,
        "program": program_json(estimates[0].program),
        "results": [result_json(estimate) for estimate in estimates],
        **compared,
        "provenance": provenance,
    }
