"""What the stand-in's model answers about a row: a function of the question and the text alone.

A text is found in a prompt whatever its layout: JSON, lines or prose.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from benchmarks.peers.programs.questions import LABELS

_ESCAPED = re.compile(r'\\[nrtbf"\\/]')
_NOT_KEPT = re.compile(r"[\W_]+")
_BEGIN = 5
"""Letters by which texts are looked up. A text with fewer is not found."""


def bare(text: str) -> str:
    """The letters and digits of a text, which no layout changes, in lower case."""
    return _NOT_KEPT.sub("", _ESCAPED.sub(" ", text)).lower()


class Texts:
    """The texts of a column."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._by_begin: dict[str, list[str]] = defaultdict(list)
        for text in sorted({bare(each) for each in texts}, key=len, reverse=True):
            self._by_begin[text[:_BEGIN]].append(text)

    def found(self, prompt: str) -> list[str]:
        """The texts in a bare prompt, bare, from its beginning; none inside another."""
        place, texts = 0, []
        while place <= len(prompt) - _BEGIN:
            here = self._by_begin.get(prompt[place : place + _BEGIN], ())
            text = next(
                (candidate for candidate in here if prompt.startswith(candidate, place)), None
            )
            if text is not None:
                texts.append(text)
            place += 1 if text is None else len(text)
        return texts


def number(*texts: str) -> int:
    """A number that texts decide, the same in every process."""
    return int.from_bytes(blake2b("\0".join(texts).encode(), digest_size=6).digest(), "big")


def sentence(question: str, text: str) -> str:
    """A sentence about a text."""
    return f"It is told in the note {number(question, bare(text)):012x}."


def recommends(text: str) -> bool:
    """Whether a critic recommends the film: one in three."""
    return number("recommends", bare(text)) % 3 == 0


def mood(text: str) -> str:
    """The label of a text."""
    return LABELS[number("mood", bare(text)) % len(LABELS)]


def extracted(text: str) -> dict[str, Any]:
    """The values of a text, by name."""
    return {"mood": mood(text), "stars": 1 + number("stars", bare(text)) % 5}


def summary(texts: Iterable[str]) -> str:
    """A summary of texts in any order, in which each of them counts once."""
    each = sorted({bare(text) for text in texts})
    return f"They are {len(each)} notes, {number(*each):012x}."
