"""`backend_config` in all its spellings: JSON, JSON in a string, MLIR attributes, loose text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_MLIR = re.compile(
    r'([A-Za-z_][\w.]*)\s*=\s*("(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false)'
)
_LARGEST = 1 << 22  # characters: a config beyond this is an opaque blob


def parse_config(text: str) -> Mapping[str, Any]:
    """The mapping a `backend_config` holds; empty where it holds none that can be read.

    `{"a":1}`, `"{\\"a\\":1}"` (older text) and `{a = 1 : i64}` (typed FFI) are all read.
    """
    text = text.strip()
    if not text or len(text) > _LARGEST:
        return {}
    for _ in range(2):  # a string may hold the JSON
        try:
            found = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            break
        if isinstance(found, dict):
            return found
        if not isinstance(found, str):
            return {}
        text = found.strip()
    if text.startswith("{") and "=" in text:
        return {name: _scalar(value) for name, value in _MLIR.findall(text)}
    return {}


def _scalar(text: str) -> Any:
    if text.startswith('"'):
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    return float(text) if any(c in text for c in ".eE") else int(text)


def find_key(config: Mapping[str, Any], key: str) -> Any:
    """The first value under `key` at any depth, breadth first; None where there is none."""
    queue: list[Any] = [config]
    for place in _breadth_first(queue):
        if key in place:
            return place[key]
    return None


def _breadth_first(queue: list[Any]) -> Iterator[Mapping[str, Any]]:
    position = 0
    while position < len(queue):
        place = queue[position]
        position += 1
        if isinstance(place, dict):
            yield place
            queue.extend(place.values())
        elif isinstance(place, list):
            queue.extend(place)


def ints(values: Any) -> tuple[int, ...]:
    """`["0","1"]` or `[0,1]` as integers; () for anything else."""
    if not isinstance(values, list):
        return ()
    try:
        return tuple(int(value) for value in values)
    except (TypeError, ValueError):
        return ()
