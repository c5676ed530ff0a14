"""What users of a machine feel: a discrete-event simulation of an LLM serving system.

Latency curves (`curves.py`) come from a few lowered and priced programs (`points.py`); the
simulation (`simulate.py`) knows nothing else of models or machines. One event per prefill
batch and per change of the decode batch, never per token.
"""
