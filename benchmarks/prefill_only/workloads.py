"""The two workloads of paper 004, Table 1, at a scale: prompts and their users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from relquery.arrays import TokenIds
from relquery.config import EngineConfig

BLOCK = EngineConfig().block_size
CHUNK = 2_048
"""Tokens per step of a conventional engine: vLLM's default, for prompts as long as the paper's."""
USERS, POSTS, INPUTS = 20, 50, 60
POST = 150
HISTORY = (14_000, 3_000)
"""Mean and standard deviation; drawn again within these bounds:"""
HISTORIES = (11_000, 17_000)
LENGTHS = (40_000, 60_000)
KEPT = 0.25
"""Share of the users' histories that fits in the cache."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts, those of a user together.

    users: the user of each prompt, counted from 0. cache_tokens: capacity of the KV cache, in whole
    blocks. chunk: tokens of a conventional engine's step, and of a slice of ours.
    """

    name: str
    prompts: tuple[TokenIds, ...]
    users: tuple[int, ...]
    cache_tokens: int
    chunk: int

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(map(len, self.prompts))

    @property
    def tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(map(len, self.prompts))

    def limits(self, *, hybrid: bool) -> EngineConfig:
        """Of an engine that serves it; hybrid: with whole prompts in a step."""
        return EngineConfig(
            max_num_batched_tokens=self.chunk,
            slice_tokens=self.chunk,
            cache_tokens=self.cache_tokens,
            max_input=self.longest if hybrid else None,
        )


def post_recommendation(
    scale: float, users: int, each: int, vocabulary: int, seed: int
) -> Workload:
    """WL1: `each` posts for each of the users, after this user's history."""
    rng = np.random.default_rng((seed, 1))
    histories = [rng.integers(0, vocabulary, _history(rng, scale)) for _ in range(users)]
    prompts = [
        np.concatenate((history, rng.integers(0, vocabulary, scaled(POST, scale))))
        for history in histories
        for _ in range(each)
    ]
    room = KEPT * sum(map(len, histories))
    whose = [user for user in range(users) for _ in range(each)]
    return _workload("posts", scale, prompts, whose, int(room))


def credit_verification(scale: float, inputs: int, vocabulary: int, seed: int) -> Workload:
    """WL2: long inputs with nothing in common, of uniform lengths in LENGTHS, one per user."""
    rng = np.random.default_rng((seed, 2))
    low, high = (scaled(length, scale) for length in LENGTHS)
    prompts = [rng.integers(0, vocabulary, rng.integers(low, high + 1)) for _ in range(inputs)]
    return _workload("credits", scale, prompts, range(inputs), 0)


def scaled(tokens: int, scale: float) -> int:
    """Tokens at a scale; at least one."""
    return max(1, round(tokens * scale))


def _history(rng: np.random.Generator, scale: float) -> int:
    """Its length: normal, but within HISTORIES."""
    length = 0.0
    while not HISTORIES[0] <= length <= HISTORIES[1]:
        length = rng.normal(*HISTORY)
    return scaled(round(length), scale)


def _workload(
    name: str,
    scale: float,
    prompts: Sequence[npt.NDArray[np.int64]],
    users: Iterable[int],
    room: int,
) -> Workload:
    """A workload whose cache holds any single prompt, and at least `cache_tokens` tokens."""
    needed = max(room, max(map(len, prompts)) + 1)
    return Workload(
        name,
        tuple(prompt.astype(np.int32) for prompt in prompts),
        tuple(users),
        -(-needed // BLOCK) * BLOCK,
        max(1, round(CHUNK * scale / BLOCK)) * BLOCK,
    )
