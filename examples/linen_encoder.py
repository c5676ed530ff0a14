"""A linen encoder with logical axes, for inference: which sharding rules are the cheaper ones?

    python examples/linen_encoder.py
    xla-cost estimate examples/linen_encoder.py:program --machine b200

The module names logical axes; two rule sets map them to one mesh of 16 devices: Megatron style
(heads and hidden width over `model`) and data parallel (everything over the batch).
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from xla_cost.lowering import ensure_devices

WIDTH, HEADS, HIDDEN, LAYERS = 4096, 32, 16_384, 24
BATCH, SEQ = 64, 512

MEGATRON = (("batch", "data"), ("heads", "model"), ("hidden", "model"))
DATA_PARALLEL = (("batch", ("data", "model")), ("heads", None), ("hidden", None))


def dense(features, axes, name):
    """A bias-free bfloat16 projection with logical axes on its weight."""
    init = nn.with_logical_partitioning(nn.initializers.lecun_normal(), axes)
    return nn.Dense(
        features, use_bias=False, kernel_init=init, name=name,
        dtype=jnp.bfloat16, param_dtype=jnp.bfloat16,
    )  # fmt: skip


class Layer(nn.Module):
    """Bidirectional attention and a feed-forward network, with residuals."""

    @nn.compact
    def __call__(self, x):
        """[batch, seq, width] to the same; the second value is what `nn.scan` stacks."""
        with jax.named_scope("attention"):
            h = nn.LayerNorm(use_bias=False, use_scale=False)(x)
            heads = (*x.shape[:2], HEADS, WIDTH // HEADS)
            q, k, v = (dense(WIDTH, (None, "heads"), name)(h).reshape(heads) for name in "qkv")
            attended = jax.nn.dot_product_attention(q, k, v).reshape(x.shape)
            x = x + dense(WIDTH, ("heads", None), "out")(attended)
        with jax.named_scope("ffn"):
            h = nn.LayerNorm(use_bias=False, use_scale=False)(x)
            h = nn.gelu(dense(HIDDEN, (None, "hidden"), "up")(h))
            x = x + dense(WIDTH, ("hidden", None), "down")(h)
        return nn.with_logical_constraint(x, ("batch", None, None)), None


class Encoder(nn.Module):
    """A scan over layers with stacked parameters."""

    @nn.compact
    def __call__(self, x):
        """[batch, seq, width] to the same."""
        layers = nn.scan(
            Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=LAYERS,
            metadata_params={nn.PARTITION_NAME: None},
        )  # fmt: skip
        return layers(name="layers")(x)[0]


def program(rules=MEGATRON):
    """Return the encoder, its abstract arguments and the mesh: what `xla-cost` lowers."""
    devices = ensure_devices(16)[:16]  # virtual: nothing runs on them
    mesh = jax.make_mesh((4, 4), ("data", "model"), (AxisType.Auto,) * 2, devices=devices)
    model = Encoder()
    x = jax.ShapeDtypeStruct((BATCH, SEQ, WIDTH), jnp.bfloat16)
    variables = jax.eval_shape(model.init, jax.random.key(0), x)
    specs = nn.get_partition_spec(variables)
    shardings = nn.logical_to_mesh_sharding(specs, mesh, rules)
    variables = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        nn.unbox(variables), shardings,
    )  # fmt: skip
    batch = nn.logical_to_mesh_axes(("batch", None, None), rules)
    x = x.update(sharding=NamedSharding(mesh, P(*batch)))

    def encode(variables, x):
        with nn.logical_axis_rules(rules):
            return model.apply(variables, x)

    return encode, (variables, x), mesh


if __name__ == "__main__":
    import xla_cost

    estimates = []
    for name, rules in (("Megatron", MEGATRON), ("data parallel", DATA_PARALLEL)):
        encode, arguments, mesh = program(rules)
        lowered = xla_cost.lower(encode, *arguments, mesh=mesh)
        estimates.append(xla_cost.estimate(lowered, "b200"))
        print(f"{name}\n{lowered}\n{estimates[-1]}\n")
    ratio = estimates[0].latency_s / estimates[1].latency_s
    print(f"data parallel is {ratio:.2f} times as fast")
