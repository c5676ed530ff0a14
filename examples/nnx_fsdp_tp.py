"""An nnx transformer trained with FSDP and tensor parallelism: what does a step cost?

    python examples/nnx_fsdp_tp.py
    xla-cost estimate examples/nnx_fsdp_tp.py:program --machine h100

The model of 1.1 billion parameters is never allocated: XLA partitions shapes for 64 devices.
Weights are split over both axes: `model` splits heads and the hidden width (tensor
parallelism), `data` splits the other dimension and is gathered layer by layer (FSDP).
"""

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from xla_cost.lowering import ensure_devices

VOCAB, WIDTH, HEADS, HIDDEN, LAYERS = 32_000, 2048, 16, 5632, 22
BATCH, SEQ = 128, 2048

MESH = AbstractMesh((16, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def linear(n_in: int, n_out: int, spec: tuple[str, str], rngs: nnx.Rngs) -> nnx.Linear:
    """A bias-free bfloat16 projection whose weight knows how it is split."""
    init = nnx.with_partitioning(nnx.initializers.lecun_normal(), spec)
    return nnx.Linear(n_in, n_out, use_bias=False, kernel_init=init, dtype=jnp.bfloat16, rngs=rngs)


class Block(nnx.Module):
    """Causal attention and a gated feed-forward network, with residuals."""

    def __init__(self, rngs: nnx.Rngs):
        self.norm_attention = nnx.RMSNorm(WIDTH, rngs=rngs)
        self.qkv = linear(WIDTH, 3 * WIDTH, ("data", "model"), rngs)
        self.out = linear(WIDTH, WIDTH, ("model", "data"), rngs)
        self.norm_ffn = nnx.RMSNorm(WIDTH, rngs=rngs)
        self.up = linear(WIDTH, HIDDEN, ("data", "model"), rngs)
        self.gate = linear(WIDTH, HIDDEN, ("data", "model"), rngs)
        self.down = linear(HIDDEN, WIDTH, ("model", "data"), rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """[batch, seq, width] to the same."""
        with jax.named_scope("attention"):
            qkv = self.qkv(self.norm_attention(x)).reshape(*x.shape[:2], HEADS, 3, -1)
            q, k, v = jnp.moveaxis(qkv, 3, 0)
            attended = jax.nn.dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(attended.reshape(x.shape))
        with jax.named_scope("ffn"):
            h = self.norm_ffn(x)
            x = x + self.down(self.up(h) * jax.nn.silu(self.gate(h)))
        return jax.lax.with_sharding_constraint(x, P("data"))


class Transformer(nnx.Module):
    """Embedding, a scan over stacked blocks, and the output head."""

    def __init__(self, rngs: nnx.Rngs):
        init = nnx.with_partitioning(nnx.initializers.normal(), ("model", "data"))
        self.embed = nnx.Embed(VOCAB, WIDTH, embedding_init=init, dtype=jnp.bfloat16, rngs=rngs)

        @nnx.split_rngs(splits=LAYERS)
        @nnx.vmap(in_axes=0, out_axes=0, transform_metadata={nnx.PARTITION_NAME: None})
        def blocks(rngs: nnx.Rngs) -> Block:
            return Block(rngs)

        self.blocks = blocks(rngs)
        self.head = linear(WIDTH, VOCAB, ("data", "model"), rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """[batch, seq] token ids to [batch, seq, vocabulary] logits."""
        with jax.named_scope("embed"):
            x = self.embed(tokens)

        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        @nnx.remat
        def layer(block: Block, x: jax.Array) -> jax.Array:
            return block(x)

        x = layer(self.blocks, x)
        with jax.named_scope("head"):
            return self.head(x)


@nnx.jit
def train_step(model: Transformer, optimizer: nnx.Optimizer, tokens: jax.Array) -> jax.Array:
    """One step of AdamW on next-token prediction; returns the loss."""

    def loss_fn(model: Transformer) -> jax.Array:
        logits = model(tokens[:, :-1]).astype(jnp.float32)
        with jax.named_scope("loss"):
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    loss, gradients = nnx.value_and_grad(loss_fn)(model)
    with jax.named_scope("optimizer"):
        optimizer.update(model, gradients)
    return loss


def program():
    """Return the step, its abstract arguments and the mesh: what `xla-cost` lowers."""

    ensure_devices(MESH.size)  # virtual, before jax starts: nothing runs on them

    def create():
        model = Transformer(nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.adamw(3e-4), wrt=nnx.Param)

    with jax.sharding.use_abstract_mesh(MESH):
        model, optimizer = nnx.eval_shape(create)
    tokens = jax.ShapeDtypeStruct(
        (BATCH, SEQ + 1), jnp.int32, sharding=NamedSharding(MESH, P("data"))
    )
    return train_step, (model, optimizer, tokens), MESH


if __name__ == "__main__":
    import xla_cost

    step, arguments, mesh = program()
    lowered = xla_cost.lower(step, *arguments, mesh=mesh)
    print(lowered)
    print(xla_cost.estimate(lowered, "h100"))
