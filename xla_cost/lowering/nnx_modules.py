"""Flax nnx modules as functions and as arguments: references to state, where XLA wants values.

flax is never imported here: whoever has such a module has imported it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax


def unbind_module(fn: Any, args: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """Make an nnx module's parameters arguments when the module itself is the function.

    Calling it would close over its abstract parameters, which cannot be traced.
    """
    nnx = sys.modules.get("flax.nnx")
    if nnx is None or not isinstance(fn, nnx.Module):
        return fn, tuple(args)
    graph, state = nnx.split(fn)

    def call(state: Any, *rest: Any, **kwargs: Any) -> Any:
        return nnx.merge(graph, state)(*rest, **kwargs)

    call.__name__ = type(fn).__name__
    return call, (state, *args)


def holds_modules(tree: Any) -> bool:
    """Tell whether an nnx module or optimizer is among the arguments."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return False

    def is_module(node: Any) -> bool:
        return isinstance(node, nnx.Module | nnx.Optimizer)

    return any(map(is_module, jax.tree.leaves(tree, is_leaf=is_module)))


def with_updates(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fn` made to return (its result, the array leaves of its arguments it replaced).

    An nnx function updates its model in place; under `jax.jit` that is lost, and XLA would
    drop the optimizer and the whole backward pass as dead code.
    """

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = jax.tree.leaves((args, kwargs))
        result = fn(*args, **kwargs)
        after = jax.tree.leaves((args, kwargs))
        if len(before) != len(after):
            return result, after
        return result, [new for old, new in zip(before, after, strict=True) if new is not old]

    return call
