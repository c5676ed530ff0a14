"""`xla-cost` and `python -m xla_cost`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from xla_cost.cli.app import run

    sys.exit(run())


if __name__ == "__main__":
    main()
