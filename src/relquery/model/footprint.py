"""The memory that a model needs: for weights, per cached token, and for a step of given size."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relquery.arrays import Slots
from relquery.engine.executor import SCRATCH, Chunk, Segment
from relquery.engine.requests.request import Draw


def host_bytes() -> int:
    """Total bytes of the machine's main memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def usable_bytes() -> int:
    """Bytes of it that a program can safely use: half of what is free."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes that a model takes (the profile run of paper 004, section 3.1).

    weights: of the model. cached_token: of one token in the KV cache. hidden_token: of one between
    two layers. peak: of a step with these chunks, in slices of so many tokens, beside weights and
    cache. is_fast: whether that is quick to know of the longest prompt. usable, whole: of the
    device's memory, what can be used and all of it.
    """

    weights: int
    cached_token: int
    hidden_token: int
    context: int
    vocabulary: int
    peak: Callable[[list[Chunk], int], int]
    is_fast: bool = True
    usable: Callable[[], int] = usable_bytes
    whole: Callable[[], int] = host_bytes

    def one_prompt(self, tokens: int, slice_tokens: int) -> int:
        """Bytes of a step that computes a whole prompt and keeps none of it."""
        return self.peak([self._chunk(tokens, SCRATCH + np.arange(tokens))], slice_tokens)

    def many_prompts(self, tokens: int, prompts: int, slice_tokens: int) -> int:
        """Bytes of a step of `tokens` tokens in equally long prompts, each with a token to draw."""
        length = max(1, tokens // prompts)
        slots = SCRATCH + np.arange(length * prompts).reshape(prompts, length)
        return self.peak([self._chunk(length, each) for each in slots], slice_tokens)

    def kept_prompt(self, tokens: int, chunk_tokens: int) -> int:
        """Bytes for computing a prompt in chunks that all stay in the cache, as in engines that
        decode (chunked prefill), or in one chunk (plain prefill). The cache is included."""
        last = min(chunk_tokens, tokens)
        chunk = self._chunk(last, np.arange(tokens), tokens - last)
        return self.peak([chunk], last) + tokens * self.cached_token

    def _chunk(self, tokens: int, slots: Slots, start: int = 0) -> Chunk:
        """Tokens of a prompt whose first `start` are computed. slots: of the whole prompt."""
        ids = (np.arange(start, start + tokens) % self.vocabulary).astype(np.int32)
        context = (Segment(slots[:start]),) if start else ()
        return Chunk(0, ids, start, context, slots[start : start + tokens], Draw())
