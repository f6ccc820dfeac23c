"""The command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the entry point of the `relquery` script."""
    try:
        from relquery.cli.app import run  # imports take long enough to be interrupted

        run()
    except KeyboardInterrupt:
        from relquery.cli.command import INTERRUPTED

        print("Interrupted.", file=sys.stderr)
        sys.exit(INTERRUPTED)
