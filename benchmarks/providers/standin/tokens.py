"""The stand-in's own tokens: another tokenizer than the one that relquery estimates with.

Providers do not publish theirs. This one cuts words into pieces of at most five letters, in the
manner of a byte-pair tokenizer with a small vocabulary; `scripts/bench providers` counts with Llama
3's where its ranks are at hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence

Encode = Callable[[str], Sequence[Hashable]]
"""The tokens of a text; equal tokens are equal values."""

_PIECE = re.compile(r" ?[^\W\d_]{1,5}|\d{1,3}|\s+|[^\w\s]{1,2}|_")
MESSAGE = 4
"""Tokens that a message takes besides its text."""


def pieces(text: str) -> list[str]:
    """See the module."""
    return _PIECE.findall(text)
