"""The program before partitioning: the matrix FLOPs a model needs, by scope.

Walks StableHLO through `jaxlib.mlir`. What is meant by needed:

- an operation outside manual sections has global shapes: its FLOPs count once;
- inside `shard_map` (`sdy.manual_computation`) shapes are those of one device, so its FLOPs
  count times the devices of the manual axes. Padding or replication that a user wrote by
  hand inside cannot be told from work there; a model that knows its need in closed form
  passes that to `xla_cost.waste` instead.

FLOPs are 2 per multiply-add. Loops count times their trips, conditionals at their dearest
branch, as in the ledger of the partitioned program.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
from jaxlib.mlir import ir

from xla_cost.errors import XlaCostError
from xla_cost.lowering.mlir_loops import trip_count
from xla_cost.lowering.mlir_matmuls import matmul_flops
from xla_cost.lowering.partition import PartitionedHlo
from xla_cost.lowering.stop import stablehlo_of
from xla_cost.walk.scopes import scope_of

#: Custom calls that mark shardings or placement and compute nothing.
_ANNOTATIONS = frozenset(
    {"Sharding", "annotate_device_placement", "xla.sdy.FuncResultSharding", "MoveToHost",
     "MoveToDevice", "xla.sdy.PropagationBarrier", "LayoutConstraint", "Layout"}
)  # fmt: skip


@dataclass(frozen=True)
class GlobalView:
    """What the whole program computes, on all devices together, once.

    `flops_by_scope` maps scope path to matrix FLOPs; `unknown_loops` lists scopes of loops
    whose trips depend on data (their bodies counted once); `unpriced` lists custom calls
    whose FLOPs are not known (counted zero).
    """

    flops_by_scope: dict[str, int]
    unknown_loops: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()

    @property
    def flops(self) -> int:
        """Matrix FLOPs of everything."""
        return sum(self.flops_by_scope.values())


def global_flops(source: PartitionedHlo | jax.stages.Lowered) -> dict[str, int]:
    """Return scope path -> matrix FLOPs of the program before partitioning."""
    return global_view(source).flops_by_scope


def global_view(source: PartitionedHlo | jax.stages.Lowered) -> GlobalView:
    """Walk the StableHLO of a lowered program. Raises `XlaCostError` where it was not kept."""
    lowered = source.lowered if isinstance(source, PartitionedHlo) else source
    if lowered is None:
        raise XlaCostError("global view: the program before partitioning was not kept")
    walker = _Walker(stablehlo_of(lowered))
    by_scope: Counter[str] = Counter()
    for op_name, flops in walker.function("main").items():
        by_scope[scope_of(op_name).path] += flops
    return GlobalView(
        dict(sorted(by_scope.items())),
        tuple(sorted(walker.unknown_loops)),
        tuple(sorted(walker.unpriced)),
    )


class _Walker:
    """Sums FLOPs by op_name. Recursion follows nesting, which jax itself traced recursively."""

    def __init__(self, module: ir.Module) -> None:
        self._functions: dict[str, Any] = {}
        self._meshes: dict[str, dict[str, int]] = {}
        self._known: dict[str, Counter[str]] = {}
        self.unknown_loops: set[str] = set()
        self.unpriced: set[str] = set()
        for op in module.body.operations:
            kind = op.operation.name
            if kind == "func.func":
                self._functions[_symbol(op.attributes["sym_name"])] = op
            elif kind == "sdy.mesh":
                axes = re.findall(r'"([^"]+)"=(\d+)', str(op.attributes["mesh"]))
                self._meshes[_symbol(op.attributes["sym_name"])] = {a: int(n) for a, n in axes}

    def function(self, name: str) -> Counter[str]:
        """FLOPs by op_name relative to the function, computed once per function."""
        if name not in self._known:
            self._known[name] = self._regions(self._functions[name])
        return self._known[name]

    def _regions(self, op: Any) -> Counter[str]:
        """FLOPs of everything inside an operation's regions, each run once."""
        total: Counter[str] = Counter()
        for region in op.operation.regions:
            total.update(self._block(region))
        return total

    def _operation(self, op: Any) -> Counter[str]:
        kind = op.operation.name
        flops = matmul_flops(op)
        if flops:
            return Counter({_name(op): flops})
        if kind == "stablehlo.while":
            return self._loop(op)
        if kind in ("stablehlo.case", "stablehlo.if"):
            bodies = [self._block(region) for region in op.operation.regions]
            return max(bodies, key=lambda body: body.total(), default=Counter())
        if kind == "func.call":
            return self._call(op, _symbol(op.attributes["callee"]))
        if kind == "stablehlo.composite":
            return self._call(op, _symbol(op.attributes["decomposition"]))
        if kind == "sdy.manual_computation":
            return _scaled(self._regions(op), self._manual_devices(op))
        if kind == "stablehlo.custom_call":
            self._custom_call(op)
        return self._regions(op)

    def _loop(self, op: Any) -> Counter[str]:
        body = self._block(op.operation.regions[1])
        trips = trip_count(op)
        if trips is None:
            self.unknown_loops.add(scope_of(_name(op)).path)
            return body
        return _scaled(body, trips)

    def _call(self, op: Any, callee: str) -> Counter[str]:
        # names inside a function are relative to its call
        prefix = _name(op)
        total: Counter[str] = Counter()
        for name, flops in self.function(callee).items():
            total[f"{prefix}/{name}" if prefix else name] += flops
        return total

    def _custom_call(self, op: Any) -> None:
        target = _symbol(op.attributes["call_target_name"])
        if target in ("SPMDFullToShardShape", "SPMDShardToFullShape"):
            self.unpriced.add(f"{target}: a manual section of GSPMD, counted as one device")
        elif target not in _ANNOTATIONS:
            self.unpriced.add(target)

    def _block(self, region: Any) -> Counter[str]:
        total: Counter[str] = Counter()
        for inner in _operations(region):
            total.update(self._operation(inner))
        return total

    def _manual_devices(self, op: Any) -> int:
        manual = re.findall(r'"([^"]+)"', str(op.attributes["manual_axes"]))
        text = f"{op.attributes['in_shardings']} {op.attributes['out_shardings']}"
        named = re.search(r"<@([\w.\"]+),", text)
        axes = self._meshes.get(named[1] if named else "", {})
        devices = 1
        for axis in manual:
            devices *= axes.get(axis, 1)
        return devices


def _operations(region: Any) -> Iterator[Any]:
    for block in region.blocks:
        yield from block.operations


def _scaled(counts: Counter[str], factor: int) -> Counter[str]:
    return Counter({name: flops * factor for name, flops in counts.items()})


def _symbol(attribute: Any) -> str:
    return str(attribute.value)


def _name(op: Any) -> str:
    """The op_name that jax gave the operation, "" without one."""
    location = op.location
    return str(location.name_str) if hasattr(location, "name_str") else ""
