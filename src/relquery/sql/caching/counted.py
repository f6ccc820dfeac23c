"""Prompts as tokens and as blocks, counted by a tokenizer of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from relquery.arrays import Int32s
from relquery.prompt import Prompt
from relquery.table.cost.blocks import Blocks
from relquery.table.cost.pieces import EstimatedTokens
from relquery.table.cost.tokens import Encode, Tokens


@dataclass(slots=True)
class Counter:
    """Counts prompts span by span: each distinct text once, the same ids for the same text.

    A provider has another tokenizer, and tokens may span two spans there; see explain.cost for how
    counts are corrected.
    """

    _encode: Encode = field(default_factory=EstimatedTokens)
    _numbers: dict[str, int] = field(default_factory=dict)
    _ids: list[Int32s] = field(default_factory=list)

    def blocks(self, prompts: Sequence[Prompt]) -> Blocks:
        """Each span is a block. Prompts with fewer spans than others end with empty blocks."""
        rows = [[self._number(_text(span.content)) for span in prompt] for prompt in prompts]
        width = max(map(len, rows), default=0)
        empty = self._number("")
        ids = np.full((len(rows), width), empty, np.int32)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = row
        return Blocks(ids, np.array([len(one) for one in self._ids], np.int64))

    def tokens(self, prompts: Sequence[Prompt]) -> Tokens:
        """The prompts as token ids."""
        rows = ([self._number(_text(span.content)) for span in prompt] for prompt in prompts)
        return Tokens.of([np.concatenate([self._ids[one] for one in row]) for row in rows])

    def count(self, prompt: Prompt) -> int:
        """Tokens of a prompt."""
        return sum(len(self._ids[self._number(_text(span.content))]) for span in prompt)

    def text(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._encode([text])[0])

    def _number(self, text: str) -> int:
        if (known := self._numbers.get(text)) is not None:
            return known
        self._ids.append(np.array(self._encode([text])[0], np.int32))
        return self._numbers.setdefault(text, len(self._ids) - 1)


def _text(content: object) -> str:
    return content if isinstance(content, str) else str(content)
