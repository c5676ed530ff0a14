"""What made a result: versions, the command, hashes. Part of every result file."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

#: raised when a field of a result file changes its meaning; new fields do not raise it
RESULT_VERSION = 1
_PACKAGES = ("xla-cost", "jax", "jaxlib", "flax")


def provenance(arguments: Sequence[str], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Versions of what decides a result, and the command line that asked for it.

    Hashes of the HLO and of the machines stand beside what they name: `program.provenance` and
    `results[].machine_hash`.
    """
    from xla_cost.cache import code_version

    return {
        "result_version": RESULT_VERSION,
        "versions": {name: _version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
        "code": code_version(),
        "command": ["xla-cost", *arguments],
        **(more or {}),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
