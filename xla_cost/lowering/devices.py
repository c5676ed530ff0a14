"""Virtual CPU devices to partition for, and the versions of jax this is tested with."""

from __future__ import annotations

import os
import re
from functools import cache

import jax
import jaxlib

from xla_cost.errors import XlaCostError
from xla_cost.programs import check_devices

#: Enough for every mesh of the reference study; starting them takes about 0.2 s.
DEFAULT_DEVICES = 1152

#: jax and jaxlib versions the capture of partitioned HLO is tested with: [low, high).
SUPPORTED_JAX = ((0, 10, 2), (0, 11, 0))


@cache
def check_jax_version() -> None:
    """Raise `XlaCostError` when jax or jaxlib is outside the tested range."""
    for name, version in (("jax", jax.__version__), ("jaxlib", jaxlib.version.__version__)):
        problem = version_problem(name, version)
        if problem:
            raise XlaCostError(problem)


def version_problem(name: str, version: str) -> str:
    """Say in one sentence why `version` of `name` cannot be used, or return ""."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    low, high = SUPPORTED_JAX
    if low <= numbers < high:
        return ""
    bounds = [".".join(map(str, bound)) for bound in SUPPORTED_JAX]
    return f"{name} {version} is installed; xla_cost needs {name} >= {bounds[0]} and < {bounds[1]}"


def ensure_devices(n: int | None = None, *, exact: bool = False) -> tuple[jax.Device, ...]:
    """Return all virtual CPU devices of this process, at least `n` of them.

    Before jax has started a backend this asks for `max(n, 1152)` of them, so that any
    smaller mesh works in the same process, or for just `n` where `exact` (for code that
    spreads over all of `jax.devices()`), and keeps jax to the CPU unless the user chose
    platforms. Afterwards the number is fixed: raises `XlaCostError` when it is too small,
    and for more devices than XLA numbers.
    """
    check_jax_version()
    if n is not None and n < 1:
        raise XlaCostError(f"ensure_devices: n = {n}; must be at least 1")
    check_devices(n or 1)
    wanted = n if exact and n is not None else max(n or 0, DEFAULT_DEVICES)
    forced = _forced_by_flags()
    if forced < (wanted if n is None else n) or (exact and forced != wanted):
        _ask_for(wanted)
    devices = tuple(jax.devices("cpu"))
    if n is not None and len(devices) < n:
        raise XlaCostError(
            f"devices: jax is already running with {len(devices)} CPU devices and {n} are needed; "
            f"set XLA_FLAGS=--xla_force_host_platform_device_count={n} in the environment (or in "
            f"Python call xla_cost.lowering.ensure_devices({n}) before anything else uses jax)"
        )
    return devices


def _forced_by_flags() -> int:
    """Return the device count that XLA_FLAGS asks for, 0 when it does not."""
    found = re.findall(
        r"--xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", "")
    )
    return int(found[-1]) if found else 0


def _ask_for(count: int) -> None:
    try:
        # refuses with RuntimeError once a backend runs: then what is there must do
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        return
    keep_to_cpu()


def keep_to_cpu() -> None:
    """Keep jax from starting real accelerators, unless the user chose platforms."""
    if not getattr(jax.config, "jax_platforms", None):
        jax.config.update("jax_platforms", "cpu")
