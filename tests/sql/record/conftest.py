"""Tests that change no table share one database."""

from __future__ import annotations

from tests.sql.execute.shared import backend, con, shared

__all__ = ["backend", "con", "shared"]
