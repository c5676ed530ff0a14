"""Machine tables: one TOML file per machine. Read with `xla_cost.machine.load`."""
