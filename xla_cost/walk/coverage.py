"""How much of a module was understood, and what to warn of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from xla_cost.hlo.ir import Module
from xla_cost.program import Body, Branch, Loop, Node, Op, Program
from xla_cost.walk.unpartitioned import unpartitioned_devices

#: Unpriced targets named in one warning.
_NAMED = 5


def cover(program: Program, module: Module, problems: list[str]) -> Program:
    """The program with its warnings and the shares of instructions and bytes understood."""
    looked_at = 0
    unpriced: list[Op] = []
    unknown_loops: list[Loop] = []
    for node in distinct_nodes(program.entry):
        looked_at += 1
        if isinstance(node, Op):
            if node.kind == "unpriced":
                unpriced.append(node)
        elif isinstance(node, Loop) and node.trips is None:
            unknown_loops.append(node)
    unknown = len(unpriced) + len(module.unparsed)
    looked_at += len(module.unparsed)
    warnings = [*module.problems, *dict.fromkeys(problems)]
    if devices := unpartitioned_devices(module):
        warnings.insert(
            0,
            f"HLO before partitioning: it has sharding annotations for {devices} devices, so "
            "shapes are global, figures are of the whole program, not per device, and collectives "
            "are still to come; expected a dump from after SPMD partitioning, see docs/extend.md",
        )
    if module.unparsed:
        line, text = module.unparsed[0]
        warnings.append(
            f"{len(module.unparsed)} lines could not be read, the first is line {line}: {text[:80]}"
        )
    if unknown_loops:
        names = ", ".join(dict.fromkeys(loop.name for loop in unknown_loops[:_NAMED]))
        warnings.append(
            f"{len(unknown_loops)} loops run as often as data say, counted once: {names}"
        )
    warnings.extend(_unpriced_warnings(unpriced))
    return replace(
        program,
        warnings=(*program.warnings, *warnings),
        coverage=1.0 - unknown / looked_at if looked_at else 1.0,
        coverage_bytes=_bytes_understood(program) if unpriced else 1.0,
        unparsed_lines=len(module.unparsed),
    )


def _unpriced_warnings(unpriced: list[Op]) -> Iterator[str]:
    notes = Counter(op.note.split(":", 1)[0] for op in unpriced)
    for note, count in notes.most_common(_NAMED):
        yield f"unpriced {count} times: {note}"
    if len(notes) > _NAMED:
        yield f"{len(notes) - _NAMED} further kinds of instruction are unpriced"


def _bytes_understood(program: Program) -> float:
    known = total = 0.0
    for op, times in program.walk():
        moved = (op.bytes_read + op.bytes_written) * times
        total += moved
        if op.kind != "unpriced":
            known += moved
    return known / total if total else 1.0


def distinct_nodes(entry: Body) -> Iterator[Node]:
    """Every node of every body once, however often it runs; no recursion."""
    seen: set[int] = set()
    stack = [entry]
    while stack:
        body = stack.pop()
        if id(body) in seen:
            continue
        seen.add(id(body))
        for node in body.nodes:
            yield node
            if isinstance(node, Loop):
                stack.append(node.body)
            elif isinstance(node, Branch):
                stack.extend(node.bodies)
