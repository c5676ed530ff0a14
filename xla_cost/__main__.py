"""`xla-cost` and `python -m xla_cost`."""

from __future__ import annotations

import sys

from xla_cost.errors import XlaCostError


def main() -> None:
    """Run the command line; turn a user's mistake into one line and exit code 2."""
    from xla_cost.cli.app import app

    try:
        app()
    except XlaCostError as error:
        print(f"xla-cost: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
