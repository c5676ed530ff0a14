"""From the `op_name` that JAX writes to the user's scope path and kernel regions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

#: Wrappers whose argument is the user's own name: `transpose(jvp(layer))` is `layer`.
_TRANSFORMS = frozenset(
    {"jvp", "transpose", "vmap", "remat", "linearize", "checkpoint", "rematted_computation",
     "custom_jvp", "custom_vjp", "xmap"}
)  # fmt: skip
#: Wrappers that name a function, not a scope: dropped whole.
_CALLS = frozenset({"jit", "pjit", "xla_pmap", "pmap", "closed_call", "core_call", "named_call"})
#: Segments JAX adds by itself.
_PLUMBING = frozenset(
    {"shard_map", "shmap_body", "closed_call", "core_call", "pjit", "jit", "remat", "remat2",
     "checkpoint", "rematted_computation", "custom_jvp_call", "custom_vjp_call",
     "custom_vjp_call_jaxpr", "custom_lin", "xla_call", "xla_pmap", "main"}
)  # fmt: skip
_WRAPPED = re.compile(r"^([A-Za-z_][A-Za-z_0-9]*)\((.*)\)$", re.DOTALL)
_BRANCH = re.compile(r"^branch_\d+_fun$")
_MICROBATCH = re.compile(r"^microbatch\[\d+\]$")
#: Options of a segment of experts, see `models.moe`.
_ROUTED = ("tokens", "experts", "top_k")
#: As many as no count of tokens has.
_DIGITS = 16
_KERNEL = re.compile(r"^kernel\[([^\],]*)(?:,([^\]]*))?\]$")


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an instruction comes from.

    `path` is the user's scope path; `region` the path up to and with its first
    `kernel[..]` segment, or ""; `kernel`, `work`, `tokens`, `experts` and `top_k` what that
    segment says (the last three, which go with the workload, are not part of the path);
    `direction` tells the forward pass, its recomputation and the backward pass of one scope
    apart, and micro-batches, whose segment `microbatch[0]` is not part of the path.
    """

    path: str
    region: str = ""
    kernel: str = ""
    work: float = 1.0
    direction: str = ""
    tokens: int = 0
    experts: int = 0
    top_k: int = 0


NOWHERE = Scope("")


@lru_cache(maxsize=65536)
def scope_of(op_name: str) -> Scope:
    """The scope of one `op_name`; the trailing primitive and JAX's own wrappers are dropped."""
    if not op_name:
        return NOWHERE
    segments = _user_segments(op_name)
    direction = "backward" if "transpose(" in op_name else ""
    if "rematted_computation" in op_name:
        direction = "recompute"
    parts = [segment for segment in segments if _MICROBATCH.match(segment)]
    if parts:
        segments = [segment for segment in segments if segment not in parts]
        direction += "".join(parts)
    path = "/".join(segments)
    for position, segment in enumerate(segments):
        match = _KERNEL.match(segment)
        if match and match[2]:
            options = dict(_option(text) for text in match[2].split(","))
            kept = [text for text in match[2].split(",") if _option(text)[0] not in _ROUTED]
            segments[position] = f"kernel[{','.join((match[1], *kept))}]"
            return Scope(
                "/".join(segments),
                "/".join(segments[: position + 1]),
                match[1].strip(),
                _work(options.get("work", "")),
                direction,
                *(_count(options.get(name, "")) for name in _ROUTED),
            )
        if match:
            region = "/".join(segments[: position + 1])
            return Scope(path, region, match[1].strip(), direction=direction)
    return Scope(path, direction=direction)


def _option(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key.strip(), value.strip()


def _work(value: str) -> float:
    """The 0.5 of `work=0.5` inside a kernel segment; 1 for what is no number in (0, 1]."""
    try:
        work = float(value)
    except ValueError:
        return 1.0
    return work if 0.0 < work <= 1.0 else 1.0


def _count(value: str) -> int:
    """The 64 of `tokens=64` inside a kernel segment; 0 for what is no whole number."""
    return int(value) if value.isdecimal() and len(value) < _DIGITS else 0


def _user_segments(op_name: str) -> list[str]:
    segments = _split(op_name)
    if segments:
        segments.pop()  # the primitive
    kept: list[str] = []
    queue = segments[::-1]
    previous = ""
    while queue:
        segment = queue.pop()
        match = _WRAPPED.match(segment)
        if match and match[1] in _TRANSFORMS:
            queue.extend(_split(match[2])[::-1])
            continue
        following = queue[-1] if queue else ""
        plumbing = (
            not segment
            or segment in _PLUMBING
            or (match is not None and match[1] in _CALLS)
            or (segment == "while" and following in ("body", "cond", "body_fun", "cond_fun", ""))
            or (previous == "while" and segment in ("body", "cond", "body_fun", "cond_fun"))
            or (segment == "cond" and _BRANCH.match(following) is not None)
            or _BRANCH.match(segment) is not None
            or "->" in segment  # an einsum formula
        )
        previous = segment
        if not plumbing:
            kept.append(segment)
    return kept


def _split(path: str) -> list[str]:
    """Split at "/" outside brackets, so that `jit(a/b)` stays one segment."""
    if "(" not in path and "[" not in path:
        return path.split("/")
    segments = []
    depth = start = 0
    for position, char in enumerate(path):
        if char in "([":
            depth += 1
        elif char in ")]":
            depth = max(0, depth - 1)
        elif char == "/" and depth == 0:
            segments.append(path[start:position])
            start = position + 1
    segments.append(path[start:])
    return segments
