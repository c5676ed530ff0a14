"""A performance model for sharded programs whose front end is the real XLA compiler."""
