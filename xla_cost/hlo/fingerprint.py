"""A hash of what an HLO text computes, whoever asked for it to be compiled."""

from __future__ import annotations

import hashlib
import re

#: Where in somebody's source an instruction comes from: the tables of files and stack frames,
#: which hold the caller's frames too, and the metadata that points into them.
_SOURCE = re.compile(
    r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:.+\n)*"
    r"| ?\b(?:stack_frame_id|source_line|source_end_line|source_column|source_end_column)=\d+"
    r'| ?\bsource_file="[^"]*"',
    re.MULTILINE,
)


def hlo_sha256(text: str) -> str:
    """Hex digest of HLO text without source positions.

    Equal for the same program lowered from two places; scopes (`op_name`) count.
    """
    return hashlib.sha256(_SOURCE.sub("", text).encode(errors="replace")).hexdigest()
