"""Building blocks: one-kernel contractions in a chosen format, norms, rotary turns, gated FFN."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

Array = jax.Array


def contract(
    left: Array, right: Array, over: Sequence[tuple[int, int]], *, operand: Any, result: Any,
    batch: Sequence[tuple[int, int]] = (),
) -> Array:  # fmt: skip
    """`lax.dot_general` with both operands converted to the `operand` dtype right before it.

    `over` and `batch` pair dimensions of left and right. Result dimensions: batch, free of
    left, free of right. Written without einsum, whose spec would turn up in every op_name.
    """
    dims = (([a for a, _ in over], [b for _, b in over]), ([a for a, _ in batch],
            [b for _, b in batch]))  # fmt: skip
    return lax.dot_general(
        left.astype(operand), right.astype(operand), dims, preferred_element_type=result
    )


def project(x: Array, weight: Array, operand: Any, result: Any) -> Array:
    """`x` [.., k] times `weight` [k, ..]."""
    return contract(x, weight, [(x.ndim - 1, 0)], operand=operand, result=result)


class Rotation(NamedTuple):
    """Cosine and sine of the rotary angles, fp32 [.., rope_dim / 2]."""

    cos: Array
    sin: Array

    @staticmethod
    def at(positions: Array, width: int, theta: float) -> Rotation:
        """Angles position * theta ** (-2 i / width) of pair i, for every position."""
        exponent = lax.iota(jnp.float32, width // 2) * (-2.0 / width)
        angle = positions[..., None].astype(jnp.float32) * jnp.power(jnp.float32(theta), exponent)
        return Rotation(jnp.cos(angle), jnp.sin(angle))

    def turn(self, x: Array) -> Array:
        """`x` [.., rope_dim] with neighbouring elements turned as pairs."""
        pairs = x.astype(jnp.float32).reshape(*x.shape[:-1], -1, 2)
        even, odd = pairs[..., 0], pairs[..., 1]
        turned = [even * self.cos - odd * self.sin, odd * self.cos + even * self.sin]
        return jnp.stack(turned, axis=-1).reshape(x.shape).astype(x.dtype)


def pick(x: Array, index: Array) -> Array:
    """Rows of `x` at `index`, which must be in range: one gather, no guard instructions."""
    rows: Array = x.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)
    return rows


def parameter(key: Array, shape: tuple[int, ...], axes: tuple[str | None, ...], part: str) -> Any:
    """A Flax parameter that knows the logical axis of each dimension and the model part.

    Initialised normal with variance one over the first dimension that is not a stack of experts.
    """
    fan_in = shape[1] if axes[0] == "experts" and len(shape) > 1 else shape[0]
    value = jax.random.normal(key, shape, jnp.float32) * fan_in**-0.5
    return nnx.Param(value, axes=axes, part=part)


class RMSNorm(nnx.Module):  # type: ignore[misc]
    """Root mean square norm over the last dimension, computed in fp32."""

    def __init__(self, width: int, eps: float):
        self.scale = nnx.Param(jnp.ones((width,), jnp.float32), axes=(None,), part="norm")
        self.eps = eps

    def __call__(self, x: Array) -> Array:
        """Shape and dtype of `x`."""
        with jax.named_scope("norm"):
            normed: Array = _rms_norm(x, self.scale[...], self.eps)
            return normed


@functools.partial(jax.jit, static_argnames=("eps",))
def _rms_norm(x: Array, scale: Array, eps: float) -> Array:
    # a function of its own, so that norms of one shape are lowered once
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide * wide, axis=-1, keepdims=True)
    return (wide * lax.rsqrt(mean + eps) * scale.astype(jnp.float32)).astype(x.dtype)


def silu(x: Array) -> Array:
    """`x * sigmoid(x)`, computed in fp32."""
    wide = x.astype(jnp.float32)
    return (wide * lax.logistic(wide)).astype(x.dtype)


class GatedFFN(nnx.Module):  # type: ignore[misc]
    """`down(silu(gate(x)) * up(x))`; on a device that holds a part of the inner width the
    result is a partial sum.
    """

    def __init__(self, hidden: int, inner: int, part: str, key: Array):
        keys = jax.random.split(key, 3)
        self.gate = parameter(keys[0], (hidden, inner), (None, "ffn"), part)
        self.up = parameter(keys[1], (hidden, inner), (None, "ffn"), part)
        self.down = parameter(keys[2], (inner, hidden), ("ffn", None), part)

    def __call__(self, x: Array, operand: Any) -> Array:
        """`x` [tokens, hidden] to [tokens, hidden], dots in dtype `operand`."""
        with jax.named_scope("gate"):
            gate = project(x, self.gate[...], operand, x.dtype)
        with jax.named_scope("up"):
            inner = silu(gate) * project(x, self.up[...], operand, x.dtype)
        with jax.named_scope("down"):
            return project(inner, self.down[...], operand, x.dtype)
