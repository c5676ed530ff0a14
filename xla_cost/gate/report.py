"""The changes of a check in words, as the command line and the pytest plugin print them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from xla_cost.gate.compare import Change


def change_lines(found: Iterable[Change], indent: str = "") -> list[str]:
    """What changed; below it the user's lines and the seconds, and the cure where there is one."""
    lines = []
    for change in found:
        lines.append(f"{indent}{'WORSE' if change.worse else 'other'}  {change.text}")
        if change.place:
            lines.append(f"{indent}       {'at ' if change.sources else ''}{change.place}")
        if change.cure:
            lines.append(f"{indent}       cure: {change.cure}")
    return lines


def annotation(change: Change) -> str:
    """A GitHub workflow command that marks the line in a pull request.

    The escapes are those of its documentation, "Workflow commands for GitHub Actions".
    """
    message = str(change).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    file, _, line = change.source.rpartition(":")
    if not file:
        return f"::error title=xla-cost::{message}"
    name = os.path.relpath(file) if os.path.isabs(file) else file
    name = name.replace("%", "%25").replace(",", "%2C").replace(":", "%3A")
    return f"::error file={name},line={line},title=xla-cost::{message}"
