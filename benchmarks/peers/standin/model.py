"""What the stand-in's model answers to a question about a row: a function of both alone."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from benchmarks.peers.programs.questions import LABELS
from benchmarks.peers.standin.texts import bare


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
