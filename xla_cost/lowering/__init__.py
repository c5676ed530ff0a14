"""From a jitted function to partitioned HLO text. Imports jax."""
