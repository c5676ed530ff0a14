"""The reproduction of the published study of photonic prefill, and what survives of it."""
