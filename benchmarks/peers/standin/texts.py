"""Finds texts of a table in a prompt, whatever its layout: JSON, lines or prose."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

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
        for text in {bare(each) for each in texts}:
            self._by_begin[text[:_BEGIN]].append(text)
        for same in self._by_begin.values():
            same.sort(key=len, reverse=True)

    def found(self, prompt: str) -> list[str]:
        """The texts in a bare prompt, bare, from its beginning; none inside another."""
        at, texts = 0, []
        while at <= len(prompt) - _BEGIN:
            here = self._by_begin.get(prompt[at : at + _BEGIN], ())
            text = next((one for one in here if prompt.startswith(one, at)), None)
            if text is not None:
                texts.append(text)
            at += 1 if text is None else len(text)
        return texts
