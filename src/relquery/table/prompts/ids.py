"""The id of a request: its row's number in the table, and a digest of cells and column names.

Results come in any order, perhaps in another process and days later. The number says where an
answer belongs, and the digest whether that row is still the one that was asked about. Providers
accept up to 64 letters, digits, hyphens and underscores.
"""

from __future__ import annotations

import re

_ID = re.compile(r"row-(0|[1-9][0-9]*)-([0-9a-f]{8})")


def custom_id(row: int, digest: str) -> str:
    """The id of a row's request."""
    return f"row-{row}-{digest}"


def read_id(text: object) -> tuple[int, str] | None:
    """(row, digest); None for an id that `custom_id` does not make."""
    found = _ID.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else (int(found[1]), found[2])
