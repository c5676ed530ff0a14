"""What HLO text computes and moves, as the values that `xla-cost inspect --json` prints.

Needs no jax and no numpy. Nothing here knows a machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from xla_cost.errors import XlaCostError
from xla_cost.hlo import Module, read_file
from xla_cost.hlo.parser import name_of
from xla_cost.program import Body, Branch, Collective, Loop, Op, Program
from xla_cost.walk import DEFAULT_RULES, Rules, walk
from xla_cost.walk.coverage import distinct_nodes
from xla_cost.walk.unpartitioned import unpartitioned_devices
from xla_cost.walk.walker import entries

#: Endings of the files that are read inside a folder.
SUFFIXES = (".hlo", ".txt")
#: Opcodes that `flops_by_opcode` always names.
_OPCODES = ("dot", "convolution", "custom-call")


def hlo_files(path: str | Path) -> list[Path]:
    """The file ("-": standard input), or the HLO files (`*.hlo`, `*.txt`) under a folder, sorted.

    Raises XlaCostError where there is none.
    """
    place = Path(path)
    if place.is_dir():
        found = sorted(p for p in place.rglob("*") if p.name.endswith(SUFFIXES) and p.is_file())
        if not found:
            raise XlaCostError(f"{path}: holds no *.hlo or *.txt file; expected HLO text")
        return found
    if str(path) != "-" and not place.exists():
        raise XlaCostError(f"{path}: no such file or folder; expected HLO text")
    return [place]


def programs(
    path: str | Path, rules: Rules = DEFAULT_RULES
) -> Iterator[tuple[Path, Module, Program | XlaCostError]]:
    """(file, module, its program or why there is none) for every module under `path`.

    A file that cannot be read at all comes with an empty module. Raises XlaCostError where
    `path` holds no HLO file.
    """
    for place in hlo_files(path):
        file = Path(name_of(place))
        try:
            modules = read_file(place)
        except XlaCostError as error:
            yield file, _nothing(file), error
            continue
        for module in modules:
            try:
                yield file, module, walk(module, rules=rules)
            except XlaCostError as error:
                yield file, module, error


def _nothing(file: Path) -> Module:
    from xla_cost.hlo import Computation

    return Module(file.name, {}, Computation("", ()))


def inspect_path(path: str | Path, rules: Rules = DEFAULT_RULES) -> dict[str, Any]:
    """`{"modules": [..], "failed": [..]}` for a file or a folder, as in `--json`."""
    modules: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    for file, module, program in programs(path, rules):
        if isinstance(program, XlaCostError):
            failed.append(failure(file, program))
        else:
            modules.append(summary(program, module, str(file), rules))
    return {"modules": modules, "failed": failed}


def failure(file: str | Path, error: XlaCostError) -> dict[str, str]:
    """One entry of `failed`."""
    return {"file": str(file), "error": str(error).removeprefix(f"{file}: ")}


def summary(
    program: Program, module: Module, file: str = "", rules: Rules = DEFAULT_RULES
) -> dict[str, Any]:
    """One entry of `modules`. FLOPs and bytes are one device's, for one run of the entry;
    where `partitioned` is false those of all devices together.

    `flops` are all matrix FLOPs: dots, convolutions and known library calls, masks not taken
    off; `flops_by_opcode` tells them apart. `flops_min` takes the cheapest branch of every
    conditional. An all-reduce that compilers turn into a reduce-scatter stays an all-reduce
    here, as the text says, with `priced_as`.
    """
    by_format: dict[str, int] = {}
    by_opcode = dict.fromkeys(_OPCODES, 0)
    collectives: dict[tuple[Any, ...], dict[str, Any]] = {}
    unpriced: list[dict[str, Any]] = []
    vector_flops = read = written = 0
    for op, times_run in program.walk():
        times = int(times_run)
        opcodes = op.matmul_opcodes or (op.opcode,) * len(op.matmuls)
        for matmul, opcode in zip(op.matmuls, opcodes, strict=True):
            flops = matmul.flops * times
            opcode = opcode.removesuffix("-start")
            by_format[matmul.format] = by_format.get(matmul.format, 0) + flops
            by_opcode[opcode] = by_opcode.get(opcode, 0) + flops
        vector_flops += op.vector_flops * times
        read += op.bytes_read * times
        written += op.bytes_written * times
        if op.collective is not None:
            _count(collectives, op, op.collective, times)
        if op.kind == "unpriced":
            unpriced.append(_unpriced(op, times))
    loops = [node for node in distinct_nodes(program.entry) if isinstance(node, Loop)]
    found: dict[str, Any] = {
        "file": file,
        "name": program.name,
        "num_partitions": module.num_partitions,
        "replica_count": module.replica_count,
        "devices": program.devices,
        "partitioned": not unpartitioned_devices(module),
        "flops": sum(by_opcode.values()),
        "flops_min": int(least_flops(program.entry)),
        "flops_by_format": dict(sorted(by_format.items())),
        "flops_by_opcode": by_opcode,
        "vector_flops": vector_flops,
        "bytes_read": read,
        "bytes_written": written,
        "parameter_bytes": program.parameter_bytes,
        "output_bytes": program.output_bytes,
        "peak_live_bytes": program.entry.peak_live_bytes,
        "collectives": list(collectives.values()),
        "loops": [{"name": loop.name, "trips": loop.trips} for loop in loops],
        "unknown_trip_counts": [loop.name for loop in loops if loop.trips is None],
        "unpriced": unpriced,
        "unparsed_lines": program.unparsed_lines,
        "complete": all(part.is_complete for part in module.computations.values()),
        "coverage": program.coverage,
        "coverage_bytes": program.coverage_bytes,
        "warnings": list(program.warnings),
    }
    roots = entries(module)
    if len(roots) > 1:
        found["computations"] = list(_by_root(roots, module, rules))
    return found


def _by_root(roots: Iterable[Any], module: Module, rules: Rules) -> Iterator[dict[str, Any]]:
    """Of a module without ENTRY, each computation that nothing calls and that does something."""
    for root in roots:
        program = walk(replace(module, entry=root, problems=(), unparsed=()), rules=rules)
        one = summary(program, replace(module, entry=root, problems=()))
        if one["flops"] or one["collectives"]:
            kept = ("name", "flops", "flops_by_opcode", "collectives")
            yield {**{key: one[key] for key in kept}, "name": root.name}


def _count(
    found: dict[tuple[Any, ...], dict[str, Any]], op: Op, collective: Collective, times: int
) -> None:
    """Add executions of a collective; those alike in all but their place are one row."""
    groups = collective.groups
    kind = collective.rewritten_from or collective.kind
    key = (
        kind, groups, collective.payload_bytes, collective.result_bytes, collective.format,
        op.scope, collective.kind,
    )  # fmt: skip
    row = found.get(key)
    if row is not None:
        row["executions"] += times
        return
    row = found[key] = {
        "kind": kind,
        "group_size": groups.size,
        "groups": groups.count,
        "payload_bytes": collective.payload_bytes,
        "result_bytes": collective.result_bytes,
        "executions": times,
        "scope": op.scope,
        "format": collective.format,
        "name": op.name,
        "source": op.source,
    }
    if collective.rewritten_from:
        row["priced_as"] = collective.kind


def _unpriced(op: Op, times: int) -> dict[str, Any]:
    return {
        "name": op.name,
        "opcode": op.opcode,
        "scope": op.scope,
        "source": op.source,
        "note": op.note,
        "bytes": op.bytes_read + op.bytes_written,
        "executions": times,
    }


def least_flops(entry: Body) -> float:
    """Matrix FLOPs where every conditional takes its cheapest branch; no recursion."""
    known: dict[int, float] = {}
    stack = [entry]
    while stack:
        body = stack[-1]
        missing = [b for node in body.nodes for b in _bodies(node) if id(b) not in known]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        total = 0.0
        for node in body.nodes:
            if isinstance(node, Op):
                total += node.flops
            elif isinstance(node, Loop):
                total += known[id(node.body)] * (1 if node.trips is None else node.trips)
            else:
                total += min(known[id(inner)] for inner in node.bodies)
        known[id(body)] = total
    return known[id(entry)]


def _bodies(node: Op | Loop | Branch) -> tuple[Body, ...]:
    if isinstance(node, Op):
        return ()
    return (node.body,) if isinstance(node, Loop) else node.bodies


def is_understood(module: dict[str, Any]) -> bool:
    """What `--strict` asks.

    Nothing unpriced, no unknown trip count, every line read, none cut, figures per device.
    """
    doubts = ("unpriced", "unknown_trip_counts", "unparsed_lines")
    return module["complete"] and module["partitioned"] and not any(module[key] for key in doubts)


def short_path(file: str) -> str:
    """A path as short as it stays clear: relative to the working folder where inside it."""
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative
