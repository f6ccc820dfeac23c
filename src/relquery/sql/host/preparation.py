"""What Python functions need before a statement, since they may not read tables while it runs."""

from __future__ import annotations

from typing import Protocol


class Preparation(Protocol):
    """Reads what Python functions need, before a statement that calls them."""

    def is_needed(self, sql: str) -> bool:
        """Whether a statement needs anything, itself or in views and macros."""

    def prepare(self, sql: str) -> None:
        """Read what a statement needs."""
