"""The real XLA:GPU and XLA:TPU compilers, without a device. Optional extras."""

from __future__ import annotations

from typing import Any, NoReturn

from xla_cost.errors import XlaCostError


def partition_for_target(
    name: str, fn: Any, arguments: Any, mesh: Any, target: str, options: Any
) -> NoReturn:
    """Compile for `gpu:NAME` or `tpu:NAME`; raises `XlaCostError` for any other target."""
    raise XlaCostError(f"target: found {target!r}; expected cpu")
