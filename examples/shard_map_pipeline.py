"""A pipeline written with shard_map: how much of a step is the bubble, and how much the wire?

    python examples/shard_map_pipeline.py
    xla-cost estimate examples/shard_map_pipeline.py:program --machine h100

Eight stages of a deep MLP, one per device row, microbatches handed on by `ppermute` (the GPipe
schedule). Every stage works in every one of the `microbatches + stages - 1` rounds, in the
bubble on nothing: `waste` shows that, since only `microbatches` rounds of each are needed.
"""

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

STAGES, MICROBATCHES, ROWS, WIDTH, LAYERS_PER_STAGE = 8, 24, 2048, 8192, 4
ROUNDS = MICROBATCHES + STAGES - 1

MESH = AbstractMesh((STAGES, 4), ("stage", "data"), axis_types=(AxisType.Auto,) * 2)

#: matrix FLOPs that the model needs, in closed form: 2 per multiply-add, every layer once
NEEDED_FLOPS = {"stage": MICROBATCHES * ROWS * STAGES * LAYERS_PER_STAGE * 2 * WIDTH * WIDTH}


def stage(weights: jax.Array, x: jax.Array) -> jax.Array:
    """The layers of one stage: weights [layers, width, width], x [rows, width]."""
    with jax.named_scope("stage"):
        for layer in range(LAYERS_PER_STAGE):
            x = jax.nn.gelu(x @ weights[layer])
        return x


def pipeline(weights: jax.Array, batches: jax.Array) -> jax.Array:
    """Run all microbatches through all stages; per device, inside shard_map.

    weights: [1, layers, width, width] of this stage; batches: [microbatches, rows, width],
    of which the first stage reads; returns the same shape, filled by the last stage.
    """
    me = jax.lax.axis_index("stage")
    onward = [(source, source + 1) for source in range(STAGES - 1)]

    def one_round(carry, number):
        incoming, done = carry
        own = jax.lax.dynamic_index_in_dim(batches, number, keepdims=False)
        y = stage(weights[0], jnp.where(me == 0, own, incoming))
        finished = jnp.maximum(number - (STAGES - 1), 0)
        done = jax.lax.dynamic_update_index_in_dim(done, y, finished, 0)
        with jax.named_scope("hand_on"):
            incoming = jax.lax.ppermute(y, "stage", onward)
        return (incoming, done), None

    start = (jnp.zeros_like(batches[0]), jnp.zeros_like(batches))
    (_, done), _ = jax.lax.scan(one_round, start, jnp.arange(ROUNDS))
    return done


def program():
    """Return the pipeline, its abstract arguments and the mesh: what `xla-cost` lowers."""
    fn = jax.shard_map(
        pipeline,
        mesh=MESH,
        in_specs=(P("stage"), P(None, "data")),
        out_specs=P(None, "data"),
        check_vma=False,
    )

    def abstract(shape, spec):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(MESH, spec))

    weights = abstract((STAGES, LAYERS_PER_STAGE, WIDTH, WIDTH), P("stage"))
    batches = abstract((MICROBATCHES, ROWS, WIDTH), P(None, "data"))
    return fn, (weights, batches), MESH


if __name__ == "__main__":
    import xla_cost

    fn, arguments, mesh = program()
    lowered = xla_cost.lower(fn, *arguments, mesh=mesh)
    print(lowered)
    print(xla_cost.estimate(lowered, "h100"))
    for row in lowered.waste(NEEDED_FLOPS):
        print(f"{row.scope}: {row.factor:.3f} times the FLOPs needed ({ROUNDS}/{MICROBATCHES})")
