"""How long a matmul, an attention kernel or a pass over memory takes on a machine."""
