"""Run XLA up to the end of SPMD partitioning and no further.

Partitioning is done some 50 ms after compilation starts; nearly all of a CPU compile is
LLVM code generation that nobody needs here. A module transformation registered at
`PRE_SCHEDULER` (public jax API) is called before code generation, and an exception raised
there ends the compile cleanly. The module as it was right after partitioning is dumped by
per-compile options. Other compiles of the same process, running or later, are left alone:
ours is known by its module name, which is unique while it compiles.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.extend import xla as jax_xla
from jaxlib.mlir import ir

from xla_cost.errors import StorageError, XlaCostError
from xla_cost.lowering.messages import one_sentence
from xla_cost.lowering.stderr import captured_stderr

#: Memory-backed storage; a dump there costs no disk traffic.
MEMORY_BACKED = "/dev/shm"
_NEEDED_BYTES = 256 * 2**20

#: Passes after partitioning whose result nobody reads. `all_to_all_decomposer` explodes one
#: all-to-all over 144 devices into thousands of slices (8 s); the others only cost time.
#: None of them runs before or inside partitioning, so the text does not change.
SKIPPED_PASSES = (
    "all_to_all_decomposer", "algsimp", "constant_folding", "copy-insertion", "fusion",
    "reshape-mover", "simplify-while-loops", "while-loop-invariant-code-motion",
)  # fmt: skip

#: `shardy-xla` and `spmd-partitioning` run for two or more partitions, `sharding-remover`
#: for one; a pass that changes nothing writes nothing.
_DUMPED_PASSES = "^(spmd-partitioning|sharding-remover)$"
_WANTED = ("after_spmd-partitioning", "after_sharding-remover", "before_optimizations")

#: What XLA's dump.cc writes on standard error, then the file and after "; " the reason.
_NOT_WRITTEN = "Could not write XLA debug data"

#: Held while XLA compiles: standard error and XLA's transformations are process-wide.
COMPILE_LOCK = threading.RLock()
_TOKENS = itertools.count()


class _PartitioningDone(Exception):  # noqa: N818  (a signal, not an error)
    """Ends our compile from inside XLA."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The HLO text right after partitioning, and the lines XLA wrote on standard error."""

    text: str
    stderr: tuple[str, ...]


def compile_until_partitioned(
    lowered: jax.stages.Lowered, devices: Sequence[jax.Device] | None = None
) -> Stopped:
    """Partition a lowered CPU computation and return the HLO text of one device.

    `devices` is for a computation lowered for an abstract mesh, which names none itself.

    For a single device it is the program without sharding annotations. Raises
    `StorageError` where no folder takes the dump, and `XlaCostError` when XLA itself refuses
    the program. One compile at a time per process (a lock), because standard error and XLA's
    list of transformations are process-wide.
    """
    with COMPILE_LOCK, _unique_name(lowered) as (name, marker):
        compile_ = _compiler(lowered, devices)
        refused: StorageError | None = None
        for parent in _scratch_parents():
            try:
                failure, text, lines = _compile_in(parent, compile_, marker)
            except StorageError as error:
                refused = error
                continue
            if text:
                return Stopped(text.replace(marker, name), tuple(lines))
            reason = (
                one_sentence(failure).replace(marker, name) if failure else "no module was dumped"
            )
            raise XlaCostError(f"partitioning {name}: XLA stopped with {reason}") from failure
        assert refused is not None  # the last of the parents is always tried
        raise refused


def _compile_in(
    parent: str | None, compile_: Callable[[dict[str, Any]], Any], marker: str
) -> tuple[Exception | None, str, list[str]]:
    """Compile with the dump under `parent` (None: the temp folder).

    Returns what ended it, the text ("" where XLA stopped before there was one) and what was
    written on standard error. Raises `StorageError` where the dump is not there or not whole.
    """
    try:
        place = parent or tempfile.gettempdir()
        with tempfile.TemporaryDirectory(
            prefix=f"xla_cost_{os.getpid()}_", dir=place, ignore_cleanup_errors=True
        ) as folder:
            failure, lines = _compile(compile_, marker, folder)
            text = _read_dump(Path(folder), place, lines)
    except OSError as error:
        raise _unwritable(parent or _temp_folder(), error.strerror or str(error)) from error
    if not text and "PartitioningDone" in str(failure):
        raise _unwritable(place, "no file appeared in it")
    return failure, text, lines


def _unwritable(place: str, reason: str) -> StorageError:
    return StorageError(f"the dump of XLA cannot be written in {place} ({reason})")


def _temp_folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # none of the usual ones can be written
        return os.environ.get("TMPDIR", "the temporary folder")


def _compiler(
    lowered: jax.stages.Lowered, devices: Sequence[jax.Device] | None
) -> Callable[[dict[str, Any]], Any]:
    if devices is None:
        return lowered.compile
    return lambda options: lowered.compile(options, device_assignment=tuple(devices))


def _compile(
    compile_: Callable[[dict[str, Any]], Any], marker: str, folder: str
) -> tuple[Exception | None, list[str]]:
    """Compile until stopped; return what ended it and what was written on standard error."""
    needle = marker.encode()

    def stop(module: bytes) -> None:
        # the module's name is the first field of the serialised proto
        if needle in module[: len(needle) + 16]:
            raise _PartitioningDone

    options = {
        "xla_dump_to": folder,
        "xla_dump_hlo_as_text": True,
        "xla_dump_hlo_pass_re": _DUMPED_PASSES,
        "xla_disable_hlo_passes": ",".join(SKIPPED_PASSES),
    }
    failure: Exception | None = None
    jax_xla.register_hlo_module_transformation(stop, name=marker, platforms="cpu")
    try:
        with captured_stderr() as captured:
            try:
                compile_(options)
            except Exception as error:  # XLA raises many kinds; the dump decides if it matters
                failure = error
    finally:
        jax_xla.clear_hlo_module_transformation(marker, platforms="cpu")
    return failure, captured.lines


def _read_dump(folder: Path, place: str, lines: Sequence[str]) -> str:
    """Return the text of the module wanted, "" where XLA dumped none.

    Raises `StorageError` when XLA says it could not write one, or the text is cut short.
    """
    for line in lines:
        if _NOT_WRITTEN in line:
            raise _unwritable(place, line.rpartition("; ")[2].strip() or "XLA gives no reason")
    for stage in _WANTED:
        for path in sorted(folder.glob(f"*{stage}*.txt")):
            text = path.read_text(encoding="utf-8", errors="replace")
            if not _is_whole(text):
                raise _unwritable(place, f"{path.name} is cut short at {len(text)} characters")
            return text
    return ""


def _is_whole(text: str) -> bool:
    """Whether the text goes from its first line to the end of the entry, which XLA puts last."""
    return text.startswith("HloModule") and "\nENTRY " in text and text.rstrip().endswith("\n}")


def _scratch_parents() -> Iterator[str | None]:
    """Yield where to dump: memory-backed storage when it has room, else the temp folder."""
    try:
        roomy = shutil.disk_usage(MEMORY_BACKED).free >= _NEEDED_BYTES
    except OSError:
        roomy = False
    if roomy and os.access(MEMORY_BACKED, os.W_OK):
        yield MEMORY_BACKED
    yield None


def stablehlo_of(lowered: jax.stages.Lowered) -> ir.Module:
    """Return the program before partitioning. Raises `XlaCostError` where jax has none."""
    module: ir.Module | None = lowered.compiler_ir("stablehlo")
    if module is None:
        raise XlaCostError("lowered: jax keeps no StableHLO of it; expected one of jax.jit")
    return module


@contextmanager
def _unique_name(lowered: jax.stages.Lowered) -> Iterator[tuple[str, str]]:
    """Give the StableHLO module a name no other compile has; yields (its own name, that one).

    The name is put back afterwards, as jax may hand the same module to the user's compile.
    """
    module = stablehlo_of(lowered)
    attributes = module.operation.attributes
    old = attributes["sym_name"]
    name = re.sub(r"[^\w.-]", "_", ir.StringAttr(old).value)
    marker = f"xla_cost_{os.getpid()}_{next(_TOKENS)}_{threading.get_ident()}"
    with module.context:
        attributes["sym_name"] = ir.StringAttr.get(marker)
    try:
        yield name, marker
    finally:
        attributes["sym_name"] = old
