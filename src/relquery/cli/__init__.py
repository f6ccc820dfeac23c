"""The command line."""

from relquery.cli.app import main

__all__ = ["main"]
