"""Flax models of the DeepSeek family, ready to be lowered. Imports jax; the core never imports this."""
