"""Where what is no result is written."""

from __future__ import annotations

from rich.console import Console


def errors_console() -> Console:
    """Progress, reports and errors go there."""
    return Console(stderr=True, soft_wrap=True)
