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
    """Bytes that a model takes (the profile run of paper 004, section 3.1)."""

    weights: int
    """Bytes of the weights."""
    cached_token: int
    """Bytes of one token in the KV cache."""
    hidden_token: int
    """Bytes of one token between two layers."""
    context: int
    vocabulary: int
    peak: Callable[[list[Chunk], int], int]
    """Bytes of a step with these chunks, in slices of so many tokens, beside weights and cache."""
    is_fast: bool = True
    """Whether `peak` is quick to tell for the longest prompt."""
    usable: Callable[[], int] = usable_bytes
    """Bytes of the device's memory that can be used."""
    whole: Callable[[], int] = host_bytes
    """Bytes of the device's whole memory."""

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
