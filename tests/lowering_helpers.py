"""What the tests of lowering share: a mesh, a matmul, and what is read off the text."""

import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from xla_cost.lowering import ensure_devices

ShapeDtype = jax.ShapeDtypeStruct


def mesh_of(kind=AxisType.Auto, shape=(4, 2), axes=("data", "model")):
    count = int(np.prod(shape))
    return jax.make_mesh(
        shape, axes, axis_types=(kind,) * len(shape), devices=ensure_devices(count)[:count]
    )


def dots(text):
    """(result shape, ..) of every dot, as text."""
    return sorted(re.findall(r"= \w+\[([\d,]*)\]\S* dot\(", text))


def collectives(text):
    kinds = r"all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute"
    return sorted(re.findall(rf" ({kinds})\(", text))


def matmul(x, w):
    return x @ w


X, W = ShapeDtype((64, 32), jnp.bfloat16), ShapeDtype((32, 16), jnp.bfloat16)
SPECS = (P("data", "model"), P("model", None))
