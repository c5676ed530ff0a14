"""Machine tables: strict TOML, every figure with its source."""
