"""A function and its abstract arguments in, the HLO of one device right after SPMD out."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jaxlib
from jax.extend import source_info_util
from jax.sharding import AbstractMesh, Mesh

from xla_cost.errors import XlaCostError
from xla_cost.hlo.fingerprint import hlo_sha256
from xla_cost.lowering.arguments import (
    attach_shardings,
    carried_mesh,
    check_arguments,
    free_on,
    mesh_axes,
    result_shardings,
    settle_mesh,
)
from xla_cost.lowering.compiler_warnings import CompilerWarning, parse_warnings
from xla_cost.lowering.devices import check_jax_version, ensure_devices
from xla_cost.lowering.messages import one_sentence
from xla_cost.lowering.nnx_modules import holds_modules, unbind_module, with_updates
from xla_cost.lowering.stderr import reemit
from xla_cost.lowering.stop import compile_until_partitioned, stablehlo_of

#: Positional and keyword arguments.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]

# Frames of ours are not the user's source: the text must not depend on how we are called.
for _name in ("lowering", "gate", "cli", "api.py", "target.py", "programs.py", "__main__.py"):
    source_info_util.register_exclusion(str(Path(__file__).parent.parent / _name))


@dataclass(frozen=True)
class PartitionedHlo:
    """The program one device runs, as XLA's SPMD partitioner left it, and how it was made.

    `text` is HLO text, `devices` replicas times partitions, `mesh` the axes (name, size)
    slowest first, `sha256` of the text; `compiler_estimate_s` is what the compiler itself
    thinks one execution takes (TPU only). Times are wall-clock seconds of this one lowering.
    """

    name: str
    text: str
    devices: int
    target: str
    mesh: tuple[tuple[str, int], ...]
    warnings: tuple[CompilerWarning, ...]
    jax_version: str
    jaxlib_version: str
    compiler_estimate_s: float | None = None
    trace_s: float = field(compare=False, default=0.0)
    lower_s: float = field(compare=False, default=0.0)
    partition_s: float = field(compare=False, default=0.0)
    lowered: jax.stages.Lowered | None = field(compare=False, repr=False, default=None)

    @cached_property
    def sha256(self) -> str:
        """Hex digest of the HLO text without source positions."""
        return hlo_sha256(self.text)

    @cached_property
    def stablehlo(self) -> str | None:
        """The global program before partitioning, with locations; None where not kept."""
        if self.lowered is None:
            return None
        module = stablehlo_of(self.lowered)
        return str(module.operation.get_asm(enable_debug_info=True))

    @property
    def provenance(self) -> tuple[tuple[str, str], ...]:
        """What made it, as sorted name-value pairs; the same for the same program."""
        mesh = ",".join(f"{name}={size}" for name, size in self.mesh)
        return (
            ("hlo_sha256", self.sha256),
            ("jax", self.jax_version),
            ("jaxlib", self.jaxlib_version),
            ("mesh", mesh),
            ("target", self.target),
        )


def partition(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    mesh: Mesh | AbstractMesh | None = None,
    target: str = "cpu",
    kwargs: Mapping[str, Any] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
) -> PartitionedHlo:
    """Trace, lower and partition `fn(*args, **kwargs)` for the devices of its mesh.

    `fn` is a plain function or anything with the ahead-of-time interface of `jax.jit`
    (`nnx.jit` too); `out_shardings`, `static_*` and `donate_argnums` are for plain
    functions, as a jitted one has its own. `args` are `ShapeDtypeStruct`s (or arrays, or
    trees of them) that carry shardings, or get them from `in_shardings`, a prefix tree of
    `PartitionSpec`s over `mesh`; `out_shardings` likewise. `mesh` is also the ambient mesh
    while tracing. No weight is allocated and no code generated. `target` "cpu" stops after
    SPMD partitioning; "gpu:NAME" and "tpu:NAME" run the real compilers, see
    `xla_cost.lowering.targets`.

    Raises `XlaCostError`, with the original error as its cause, when the function cannot be
    traced or the compiler refuses it.
    """
    check_jax_version()
    check_arguments(fn, args, kwargs)
    options = {
        "out_shardings": out_shardings,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
    }
    name = function_name(fn)
    fn, args = unbind_module(fn, attach_shardings(tuple(args), in_shardings, mesh))
    arguments: Arguments = (tuple(args), dict(kwargs or {}))
    if target != "cpu":
        from xla_cost.lowering.targets import partition_for_target

        return partition_for_target(name, fn, arguments, mesh, target, options)
    mesh, arguments = settle_mesh(mesh, arguments)
    options["out_shardings"] = result_shardings(out_shardings, mesh or carried_mesh(arguments))
    # an abstract mesh has no devices of its own: those of this process stand in
    devices = ensure_devices(mesh.size)[: mesh.size] if isinstance(mesh, AbstractMesh) else None
    lowered, trace_s, lower_s = trace_and_lower(name, fn, arguments, mesh, options)
    if isinstance(mesh, AbstractMesh) and _partitions(lowered) != mesh.size:
        # no argument and no jit named the mesh, which an ambient abstract one does not replace
        arguments = free_on(mesh, arguments)
        lowered, trace_s, lower_s = trace_and_lower(name, fn, arguments, mesh, options)
    start = time.perf_counter()
    stopped = compile_until_partitioned(lowered, devices)
    partition_s = time.perf_counter() - start
    warnings, rest = parse_warnings(stopped.stderr, stopped.text)
    reemit(rest)
    return PartitionedHlo(
        name=name,
        text=stopped.text,
        devices=device_count(stopped.text),
        target=target,
        mesh=mesh_axes(mesh, arguments),
        warnings=warnings,
        jax_version=jax.__version__,
        jaxlib_version=jaxlib.version.__version__,
        trace_s=trace_s,
        lower_s=lower_s,
        partition_s=partition_s,
        lowered=lowered,
    )


def trace_and_lower(
    name: str,
    fn: Callable[..., Any],
    arguments: Arguments,
    mesh: Mesh | AbstractMesh | None,
    options: Mapping[str, Any],
    platform: str = "cpu",
) -> tuple[jax.stages.Lowered, float, float]:
    """Return the lowered computation and the seconds tracing and lowering took."""
    given = {key: value for key, value in options.items() if value is not None}
    jitted: Any = fn
    if not hasattr(fn, "lower"):
        if holds_modules(arguments):
            jitted = with_updates(fn)
            if out_shardings := given.pop("out_shardings", None):
                given["out_shardings"] = (out_shardings, None)
        jitted = jax.jit(jitted, **given)
    elif given:
        raise XlaCostError(
            f"{name}: is jitted already, so {', '.join(sorted(given))} must be given to its jit"
        )
    args, kwargs = arguments
    start = time.perf_counter()
    try:
        # a print in the function must not mix with what a command prints
        with ambient(mesh), contextlib.redirect_stdout(sys.stderr):
            traced = jitted.trace(*args, **kwargs)
            traced_at = time.perf_counter()
            lowered = traced.lower(lowering_platforms=(platform,))
    except XlaCostError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's function raises
        raise XlaCostError(f"tracing {name}: {one_sentence(error)}") from error
    end = time.perf_counter()
    # flax's nnx.jit wraps what jax returns once more
    return getattr(lowered, "lowered", lowered), traced_at - start, end - traced_at


def ambient(mesh: Mesh | AbstractMesh | None) -> contextlib.AbstractContextManager[Any]:
    """Return a context whose mesh bare `PartitionSpec`s in the user's code refer to."""
    if mesh is None:
        return contextlib.nullcontext()
    if isinstance(mesh, AbstractMesh):
        return jax.sharding.use_abstract_mesh(mesh)
    return jax.set_mesh(mesh)


def _partitions(lowered: jax.stages.Lowered) -> int:
    attributes = stablehlo_of(lowered).operation.attributes
    return int(attributes["mhlo.num_partitions"].value)


def function_name(fn: Any) -> str:
    """Return a readable name of a callable."""
    return str(getattr(fn, "__name__", None) or type(fn).__name__)


def device_count(hlo_text: str) -> int:
    """Return replicas times partitions from the first line of HLO text."""
    head = hlo_text.split("\n", 1)[0]
    count = 1
    for key in ("num_partitions", "replica_count"):
        found = re.search(rf"\b{key}=(\d+)", head)
        count *= int(found[1]) if found else 1
    return count
