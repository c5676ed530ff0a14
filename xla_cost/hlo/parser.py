"""HLO text and files to modules. Lenient: what no rule can read is listed, never raised."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from xla_cost.collection import no_collection
from xla_cost.errors import XlaCostError
from xla_cost.hlo.ir import Module
from xla_cost.hlo.reader import Reader


def parse(text: str, *, where: str = "<text>") -> tuple[Module, ...]:
    """All modules in `text`, in order.

    Text without `HloModule`, `ENTRY` or `ROOT`, fragments, FileCheck files with several
    modules and text cut in the middle are read as far as they go; `Module.problems` and
    `Module.unparsed` say what was assumed and what could not be read.

    Raises XlaCostError where no instruction at all can be read; `where` names the text in it.
    """
    with no_collection():  # reading makes no cycle
        modules = Reader(_normalised(text)).read()
    if not modules:
        raise XlaCostError(f"{where}: found {_what(text)}, expected HLO text")
    return modules


def read_file(path: str | Path) -> tuple[Module, ...]:
    """All modules in a file of HLO text ("-": standard input), as `parse` gives them.

    Raises XlaCostError in one sentence for a file that is missing, binary, empty or holds
    no HLO.
    """
    return parse(read_text(path), where=name_of(path))


def name_of(path: str | Path) -> str:
    """What errors and results call a file; "-" is standard input."""
    return "standard input" if str(path) == "-" else str(path)


def read_text(path: str | Path) -> str:
    """The text of a file that should hold HLO. XlaCostError for a missing or binary one."""
    name = name_of(path)
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise XlaCostError(f"{name}: cannot be read ({reason}), expected a file") from error
    if any(byte < 9 or 13 < byte < 27 for byte in data[:4096]):
        raise XlaCostError(
            f"{name}: found binary data, expected HLO text (dump with --xla_dump_hlo_as_text)"
        )
    return data.decode("utf-8", errors="replace")


def _normalised(text: str) -> str:
    """`text` with line feeds only and one at its end."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.removeprefix("\ufeff")
    return text if text.endswith("\n") else text + "\n"


def _what(text: str) -> str:
    """What `text` seems to be, for the error message."""
    if not text.strip():
        return "nothing"
    if re.search(r"^\s*(?:hlo_module|hlo|computations|instructions)\s*\{", text, re.MULTILINE):
        return "a protobuf in text form"
    if re.search(r"^\s*(?:module\b.*\{|func\.func\b)", text, re.MULTILINE):
        return "MLIR (StableHLO or MHLO)"
    return f"no HLO instruction in {len(text)} characters"
