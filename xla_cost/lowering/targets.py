"""The real XLA:GPU and XLA:TPU compilers, without a device. Optional extras.

The function is exported (`jax.export`) from whatever mesh it was written for and compiled for
a topology of compile-only devices, so the program priced is the one the accelerator would
run: scheduled, fused, with asynchronous collectives and real reduce-scatters.
"""

from __future__ import annotations

import importlib.util
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jaxlib
import numpy as np
from jax.experimental import topologies
from jax.sharding import AbstractMesh, Mesh, NamedSharding

from xla_cost.errors import XlaCostError
from xla_cost.lowering.arguments import (
    carried_mesh,
    mesh_axes,
    result_shardings,
    settle_mesh,
)
from xla_cost.lowering.compiler_warnings import parse_warnings
from xla_cost.lowering.devices import keep_to_cpu
from xla_cost.lowering.gpu_config import GPUS, target_config, topology_of
from xla_cost.lowering.messages import one_sentence
from xla_cost.lowering.nnx_modules import with_updates
from xla_cost.lowering.partition import Arguments, PartitionedHlo, ambient, device_count
from xla_cost.lowering.stderr import captured_stderr, reemit
from xla_cost.lowering.stop import COMPILE_LOCK

#: Chips -> topology of a slice, as Google Cloud sells them (v5e and v6e are 2-D tori).
_SLICES_2D = {
    1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16",
}  # fmt: skip

#: As recommended for training and serving on GPUs: without it XLA:GPU overlaps nothing.
_GPU_OPTIONS: Mapping[str, Any] = {"xla_gpu_enable_latency_hiding_scheduler": True}

_EXPORTED = re.compile(r"jit\([^()/]*\)/call_exported/")

_JITTED = type(jax.jit(lambda: 0))


@dataclass(frozen=True, slots=True)
class _Compiler:
    """A platform name of jax, its compile-only devices and its compile options."""

    platform: str
    devices: Sequence[jax.Device]
    options: Mapping[str, Any]


def is_installed(target: str) -> bool:
    """Tell whether the compiler of `target` ("gpu:..", "tpu:..") can be loaded here."""
    if target.startswith("gpu:"):
        return any(_has(f"jax_plugins.xla_cuda{version}") for version in (12, 13))
    return target.startswith("tpu:") and _has("libtpu")


def partition_for_target(
    name: str,
    fn: Callable[..., Any],
    arguments: Arguments,
    mesh: Mesh | AbstractMesh | None,
    target: str,
    options: Mapping[str, Any],
) -> PartitionedHlo:
    """Compile for `gpu:h100|b200|b300` or `tpu:v5e-16`; the text is the scheduled HLO.

    Raises `XlaCostError` for another target, a missing extra, static arguments (close over
    them instead) or a program the compiler refuses, such as one that does not fit.
    """
    given = sorted(key for key, value in options.items() if value is not None)
    static = [key for key in given if key.startswith("static")]
    if static:
        raise XlaCostError(f"target {target}: {static[0]} is not taken; close over the value")
    scope, arguments = settle_mesh(mesh, arguments)
    home = scope or carried_mesh(arguments)
    compiler = _compiler(target, 1 if home is None else home.size)
    out_shardings = result_shardings(options.get("out_shardings"), home)
    if hasattr(fn, "lower") and given:
        raise XlaCostError(f"{name}: is jitted already, so {given[0]} must be given to its jit")
    # export takes jax's own jitted functions only, not those of flax
    jitted: Any = fn
    if not isinstance(fn, _JITTED):
        jitted = jax.jit(with_updates(fn), out_shardings=(out_shardings, None))
    start = time.perf_counter()
    try:
        with ambient(scope):
            exported = jax.export.export(
                jitted, platforms=[compiler.platform], disabled_checks=_NO_CHECKS
            )(*arguments[0], **arguments[1])
    except XlaCostError:
        raise
    except Exception as error:  # whatever the user's function raises
        raise XlaCostError(f"tracing {name}: {one_sentence(error)}") from error
    exported_at = time.perf_counter()
    args, kwargs = _on_devices(arguments, home, compiler.devices)
    lowered = _call_of(name, exported).lower(*args, **kwargs)
    lowered_at = time.perf_counter()
    with COMPILE_LOCK, captured_stderr() as captured:
        try:
            compiled = lowered.compile(dict(compiler.options))
        except Exception as error:
            failure: Exception | None = error
        else:
            failure = None
    if failure is not None:
        raise XlaCostError(f"compiling {name} for {target}: {one_sentence(failure)}") from failure
    text = _EXPORTED.sub("", compiled.as_text() or "")
    warnings, rest = parse_warnings(captured.lines, text)
    reemit(rest)
    return PartitionedHlo(
        name=name,
        text=text,
        devices=device_count(text),
        target=target,
        mesh=mesh_axes(mesh, arguments),
        warnings=warnings,
        jax_version=jax.__version__,
        jaxlib_version=jaxlib.version.__version__,
        compiler_estimate_s=_own_estimate_s(compiled),
        trace_s=exported_at - start,
        lower_s=lowered_at - exported_at,
        partition_s=time.perf_counter() - lowered_at,
        lowered=lowered,
    )


def _call_of(name: str, exported: jax.export.Exported) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return exported.call(*args, **kwargs)

    call.__name__ = re.sub(r"\W", "_", name)
    return jax.jit(call)


#: Custom calls without a stability promise are fine: nothing is stored for later.
_NO_CHECKS = [jax.export.DisabledSafetyCheck.custom_call(".*")]


def _compiler(target: str, devices: int) -> _Compiler:
    kind, _, model = target.partition(":")
    if kind == "gpu" and model in GPUS:
        _need(target, "the CUDA compiler of jax", "gpu")
        gpu = GPUS[model]
        return _Compiler("cuda", _gpu_devices(target, gpu, devices), _GPU_OPTIONS)
    if kind == "tpu" and re.fullmatch(r"v\w+(-\d+|:\d+(x\d+)*)", model):
        _need(target, "libtpu", "tpu")
        return _Compiler("tpu", _tpu_devices(target, model, devices), {})
    gpus = ", ".join(f"gpu:{name}" for name in GPUS)
    raise XlaCostError(f"target: found {target!r}; expected cpu, {gpus} or tpu:v5e-16")


def _need(target: str, what: str, extra: str) -> None:
    if not is_installed(target):
        raise XlaCostError(f"target {target}: {what} is not installed; install xla-cost[{extra}]")


def _gpu_devices(target: str, gpu: Any, devices: int) -> Sequence[jax.Device]:
    keep_to_cpu()  # the plugin must not look for a real GPU
    return _topology(
        target, devices, topology_name="", platform="cuda",
        topology=topology_of(gpu, devices), target_config=target_config(gpu),
    )  # fmt: skip


def _tpu_devices(target: str, model: str, devices: int) -> Sequence[jax.Device]:
    # without it libtpu asks the metadata server of a cloud machine
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    if ":" not in model:
        generation, _, chips = model.partition("-")
        if generation not in ("v5e", "v6e") or int(chips) not in _SLICES_2D:
            raise XlaCostError(
                f"target {target}: {model} has no known topology; expected v5e-N or v6e-N with N "
                f"in {sorted(_SLICES_2D)}, or one spelled out such as tpu:v5p:2x2x4"
            )
        model = f"{generation}:{_SLICES_2D[int(chips)]}"
    return _topology(target, devices, topology_name=model, platform="tpu")


def _topology(target: str, devices: int, **description: Any) -> Sequence[jax.Device]:
    with captured_stderr() as captured:
        try:
            found: Sequence[jax.Device] = topologies.get_topology_desc(**description).devices
            failure: Exception | None = None
        except Exception as error:
            found, failure = (), error
    if failure is not None:
        reemit(captured.lines)  # otherwise it only says that no accelerator is attached
        raise XlaCostError(f"target {target}: {one_sentence(failure)}") from failure
    if len(found) != devices:
        raise XlaCostError(
            f"target {target}: has {len(found)} devices and the mesh {devices}; must be equal"
        )
    return found


def _on_devices(
    arguments: Arguments, home: Mesh | AbstractMesh | None, devices: Sequence[jax.Device]
) -> Arguments:
    """The arguments with their shardings moved to the target's devices."""
    if home is None:
        single = jax.sharding.SingleDeviceSharding(devices[0])
        placed: Arguments = jax.tree.map(lambda leaf: _placed(leaf, single), arguments)
        return placed
    shape = tuple(home.shape.values())
    mesh = Mesh(np.array(devices).reshape(shape), home.axis_names, axis_types=home.axis_types)

    def move(leaf: Any) -> Any:
        sharding = getattr(leaf, "sharding", None)
        spec = sharding.spec if isinstance(sharding, NamedSharding) else jax.P()
        return _placed(leaf, NamedSharding(mesh, spec))

    moved: Arguments = jax.tree.map(move, arguments)
    return moved


def _placed(leaf: Any, sharding: jax.sharding.Sharding) -> Any:
    shape_dtype = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else jax.typeof(leaf)
    return jax.ShapeDtypeStruct(shape_dtype.shape, shape_dtype.dtype, sharding=sharding)


def _own_estimate_s(compiled: jax.stages.Compiled) -> float | None:
    """Seconds of one execution by the compiler's own model; only TPUs give them."""
    try:
        costs = compiled.cost_analysis() or {}
    except (NotImplementedError, jax.errors.JaxRuntimeError):
        return None
    seconds = costs.get("optimal_seconds", 0.0) if isinstance(costs, dict) else 0.0
    return float(seconds) if seconds and seconds > 0 else None


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
