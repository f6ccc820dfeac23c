"""The line between training text and held-out text.

A text (a title, a name, a review) always belongs to the same side, decided by a checksum of its
characters. So no text of a held-out row can have occurred in training, whatever the seeds.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import Enum

HELD_OUT_SHARE = 8  # one text in eight is held out


class Split(Enum):
    """Which texts may be drawn."""

    TRAIN = "train"
    HELD_OUT = "held_out"

    def owns(self, text: str) -> bool:
        """True if `text` is on this side of the line."""
        held_out = zlib.crc32(text.encode()) % HELD_OUT_SHARE == 0
        return held_out == (self is Split.HELD_OUT)

    def draw(self, make: Callable[[], str]) -> str:
        """The first text from `make` that is on this side."""
        while not self.owns(text := make()):
            pass
        return text
