"""A fake backend with a tokenizer and a prefix cache, which counts as the local engine does."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from relquery.arrays import TokenIds
from relquery.backends.base import Answers, Limits
from relquery.prompt import Prompt, Sampling
from tests.sql.fakes import FakeBackend, text_of

BLOCK = 8


@dataclass(slots=True)
class Reader(FakeBackend):
    """A character is a token. blocks: how many its cache holds, the last used last."""

    blocks: int = 1000
    cached: OrderedDict[str, None] = field(default_factory=OrderedDict)

    @property
    def limits(self) -> Limits:
        return Limits(cache_tokens=self.blocks * BLOCK, block_tokens=BLOCK)

    def runs(self, prompt: Prompt) -> list[TokenIds]:
        return [np.array([ord(char) for char in _text(prompt)], np.int32)]

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int]:
        return [len(_text(prompt)) for prompt in prompts]

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        # Zero-argument super() does not work in a class with slots.
        for index, answer in FakeBackend.answer(self, prompts, sampling):
            served = self._serve(_text(prompts[index])[:-1])
            yield index, replace(answer, cached_tokens=served)

    def _serve(self, text: str) -> int:
        heads = [text[:end] for end in range(BLOCK, len(text) + 1, BLOCK)]
        hits = next((at for at, head in enumerate(heads) if head not in self.cached), len(heads))
        for head in reversed(heads):
            self.cached[head] = None
            self.cached.move_to_end(head)
        while len(self.cached) > self.blocks:
            self.cached.popitem(last=False)
        return hits * BLOCK


def _text(prompt: Prompt) -> str:
    return "".join(map(text_of, prompt))
