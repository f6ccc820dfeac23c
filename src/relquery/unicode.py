"""Text as it can be written anywhere: without halves of characters, which a tokenizer may give."""

from __future__ import annotations

import re

_HALVES = re.compile("[\ud800-\udfff]")


def valid(text: str) -> str:
    """A text with U+FFFD in place of each lone surrogate."""
    return text if text.isascii() else _HALVES.sub("\ufffd", text)
