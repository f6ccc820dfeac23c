"""Paths as Spark reads and writes them. Its own are no URIs: it decodes no percent signs."""

from __future__ import annotations

import re
from pathlib import Path

_OF_PATTERNS = re.compile(r"[\\*?\[\]{}]")


def to_write(path: Path) -> str:
    """A path on this machine's disks, or on what is mounted there."""
    return f"file:{path}"


def to_read(path: Path, pattern: str = "") -> str:
    """The same, which Spark reads as a pattern. pattern: of files in the folder."""
    escaped = _OF_PATTERNS.sub(r"\\\g<0>", str(path))
    return f"file:{escaped}/{pattern}" if pattern else f"file:{escaped}"
