"""Result files, which may come from strangers: read, checked, and told apart by kind."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xla_cost.errors import XlaCostError
from xla_cost.jsonio import read_json
from xla_cost.provenance import RESULT_VERSION

#: deeper than any result; a browser's JSON reader and ours take much more
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A checked result: `kind` is a key of KINDS, `data` the JSON object as read."""

    kind: str
    name: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number of at least `least`."""

    least: float = 0.0


@dataclass(frozen=True, slots=True)
class Some:
    """A list of one shape with at least one entry."""

    of: Any


@dataclass(frozen=True, slots=True)
class Maybe:
    """What may be missing, or null."""

    of: Any


_S = Number()
_ANY = Number(-math.inf)
_COLUMN = [_ANY]
_SCOPE = {"scope": str, "compute_s": _S, "comm_s": _S, "exposed_comm_s": _S}
_TIMELINE = {
    "streams": [str],
    "latency_s": _S,
    "events": {
        name: Maybe([_S]) for name in ("start_s", "end_s", "stream", "task", "iteration")
    },
    "loops": [
        {"name": str, "scope": str, "start_s": _S, "end_s": _S, "trips": _S, "iteration_s": _S}
    ],
}  # fmt: skip
_TASKS = {
    **{name: Maybe([str]) for name in (
        "name", "kind", "opcode", "scope", "source", "format", "bound", "algorithm")},
    **{name: Maybe([_S]) for name in (
        "executions", "seconds", "flops", "vector_flops", "bytes", "group_size", "groups")},
}  # fmt: skip
_RESULT = {
    "machine": str,
    "latency_s": _S,
    "compute_s": _S,
    "comm_s": _S,
    "exposed_comm_s": _S,
    "energy_j": Maybe(_S),
    "memory": {
        "weights_bytes": _S,
        "kv_cache_bytes": _S,
        "peak_activation_bytes": _S,
        "capacity_bytes": _S,
        "fits": bool,
    },
    "comm_s_by_tier": {"*": _S},
    "by_scope": [_SCOPE],
    "scope_tree": Maybe([_SCOPE | {"depth": _S, "flops": _S}]),
    "bound_s": Maybe({"*": _S}),
    "policy": Maybe({}),
    "collectives": Maybe([{"name": str, "kind": str, "scope": str, "seconds": _S}]),
    "warnings": Maybe([str]),
    "tasks": Maybe(_TASKS),
    "timeline": Maybe(_TIMELINE),
    "roofs": Maybe({
        "peak_flops_per_s": {"*": _S},
        "memory_bytes_per_s": _S,
        "tier_bytes_per_s": {"*": _S},
    }),
}  # fmt: skip
_ESTIMATE = {
    "results": Some(_RESULT),
    "ratio": _S,
    "ratio_split": {"*": _S},
    "program": Maybe({}),
    "provenance": Maybe({}),
    "difference": Maybe([{"scope": str, "saved_s": _ANY}]),
}
_RANKED = {"mesh": [_S], "plan": str, "latency_s": _S, "compute_s": _S, "comm_s": _S, "fits": bool}
_DISTRIBUTION = {"mean": _S, "p50": _S, "p90": _S, "p99": _S}
#: what a file of each kind must hold; a list of one shape is a list of any length of it,
#: the key "*" any key, and an empty mapping anything inside
KINDS: Mapping[str, Mapping[str, Any]] = {
    "estimate": _ESTIMATE,
    "demo": {"points": Some({**_ESTIMATE, "request": Maybe({}), "policy": str})},
    "search": {
        "candidates": _S,
        "evaluated": _S,
        "counts": Maybe({"*": _S}),
        "best": [_RANKED],
        "rejected": [{"mesh": [_S], "why": str}],
        "why": Maybe([{"part": str, "winner_s": _S, "runner_up_s": _S}]),
        "winner": Maybe(_ESTIMATE),
    },
    "sweep": {"rows": [{"machine": str, "model": str}]},
    "serve": {
        "requests": _S,
        "ttft_s": _DISTRIBUTION,
        "tpot_s": {part: Maybe(_S) for part in _DISTRIBUTION},
        "e2e_s": _DISTRIBUTION,
        "series": Maybe({"*": [[_ANY]]}),
    },
    "study": {
        "ratios": [{"model": str, "machine": str}],
        "waterfalls": [{"machine": str, "point": str, "bars": [{"step": str, "how": str}]}],
    },
    "inspect": {"modules": [{"file": str}], "failed": [{}]},
}
#: the key that only files of a kind have, first match first
_MARKS = (
    ("waterfalls", "study"),
    ("modules", "inspect"),
    ("points", "demo"),
    ("results", "estimate"),
    ("best", "search"),
    ("rows", "sweep"),
    ("ttft_s", "serve"),
)


def read_result(path: str | os.PathLike[str]) -> ResultFile:
    """Read and check a result file of any command; "-" is standard input.

    Raises XlaCostError in one sentence when it is not JSON, of another version, of no known
    kind, or a field that a reader of it needs is missing, of another type or not finite.
    """
    name = "standard input" if os.fspath(path) == "-" else os.fspath(path)
    return checked(read_json(path), name)


def checked(data: Any, name: str) -> ResultFile:
    """The same for JSON that was read already; `name` is what errors call it."""
    if not isinstance(data, dict):
        raise XlaCostError(f"{name}: holds a {_word(data)}; expected a result, a JSON object")
    _refuse_version(data, name)
    _refuse_wild(data, name)
    kind = next((kind for mark, kind in _MARKS if mark in data), "table")
    if kind == "table" and not any(isinstance(v, list | dict) and v for v in data.values()):
        raise XlaCostError(
            f"{name}: has the keys {', '.join(sorted(data)[:5]) or '(none)'}; expected a result of "
            f"xla-cost, with one of {', '.join(mark for mark, _ in _MARKS)}"
        )
    if kind in KINDS:
        _check(data, KINDS[kind], name, "")
    return ResultFile(kind, name, data)


def _refuse_version(data: Mapping[str, Any], name: str) -> None:
    made_by = data.get("provenance", {})
    if not isinstance(made_by, dict):
        raise XlaCostError(f"{name}: provenance is a {_word(made_by)}; expected an object")
    version = made_by.get("result_version", RESULT_VERSION)
    if version != RESULT_VERSION or isinstance(version, bool):
        raise XlaCostError(
            f"{name}: provenance.result_version = {version!r:.80}; this xla-cost reads version "
            f"{RESULT_VERSION}"
        )


def _refuse_wild(data: Any, name: str) -> None:
    """No number that is not finite (1e999 reads as infinity), no nesting without end."""
    pending = [(data, 0)]
    while pending:
        value, depth = pending.pop()
        if depth > _DEEPEST:
            raise XlaCostError(f"{name}: is nested deeper than {_DEEPEST} levels; no result is")
        if isinstance(value, dict):
            pending.extend((item, depth + 1) for item in value.values())
        elif isinstance(value, list):
            pending.extend((item, depth + 1) for item in value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise XlaCostError(f"{name}: holds a number beyond 1e308; numbers must be finite")


def _check(value: Any, shape: Any, name: str, place: str) -> None:
    if isinstance(shape, Maybe):
        if value is not None:
            _check(value, shape.of, name, place)
    elif isinstance(shape, Number):
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or value < shape.least:
            least = "" if shape.least == -math.inf else f" of at least {shape.least:g}"
            raise _wrong(name, place, value, f"a number{least}")
    elif isinstance(shape, type):
        if not isinstance(value, shape):
            raise _wrong(name, place, value, "a string" if shape is str else "true or false")
    elif isinstance(shape, Some):
        _check(value, [shape.of], name, place)
        if not value:
            raise XlaCostError(f"{name}: {place} is empty; expected at least one entry")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise _wrong(name, place, value, "a list")
        for index, item in enumerate(value):
            _check(item, shape[0], name, f"{place}[{index}]")
    else:
        _check_object(value, shape, name, place)


def _check_object(value: Any, shape: Mapping[str, Any], name: str, place: str) -> None:
    if not isinstance(value, dict):
        raise _wrong(name, place, value, "an object")
    for key, inner in shape.items():
        if key == "*":
            for own, item in value.items():
                _check(item, inner, name, f"{place}.{own}")
            continue
        where = f"{place}.{key}" if place else key
        if key not in value and not isinstance(inner, Maybe):
            raise XlaCostError(f"{name}: {where} is missing; expected {_words(inner)}")
        _check(value.get(key), inner, name, where)


def _wrong(name: str, place: str, value: Any, expected: str) -> XlaCostError:
    shown = repr(value) if isinstance(value, str | int | float | None) else f"a {_word(value)}"
    return XlaCostError(f"{name}: {place or 'the top'} = {shown:.80}; expected {expected}")


def _words(shape: Any) -> str:
    if isinstance(shape, Number):
        return "a number"
    if isinstance(shape, list | Some):
        return "a list"
    if isinstance(shape, Mapping):
        return "an object"
    return {str: "a string", bool: "true or false"}.get(shape, "an object")


def _word(value: Any) -> str:
    words = {dict: "object", list: "list", str: "string", bool: "boolean", type(None): "null"}
    return words.get(type(value), "number")
