"""The command line: one module per command, every heavy import inside the command."""
