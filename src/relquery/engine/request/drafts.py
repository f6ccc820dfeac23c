"""Likely answers as a trie of tokens, computed in the step that ends a prompt.

Speculative decoding without a draft model: the texts that an answer is compared with are the likely
answers. The token drawn after the beginning of a draft is used if the answer really begins that
way, and then needs no step of its own. Drafts never change an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """A token of a draft. above: number of the previous node, None for the first. depth: from 0."""

    above: int | None
    token: int
    depth: int


class Drafts:
    """The drafts of one call. Never changes: all its requests share it.

    drafts: token sequences. nodes: each after the one above it. tokens: number to be computed in
    addition to the prompt's.
    """

    def __init__(self, drafts: Sequence[tuple[int, ...]]) -> None:
        self.nodes: list[Node] = []
        self._below: dict[tuple[int | None, int], int] = {}
        for draft in drafts:
            at = None
            for depth, token in enumerate(draft):
                if (at, token) not in self._below:
                    self._below[at, token] = len(self.nodes)
                    self.nodes.append(Node(at, token, depth))
                at = self._below[at, token]

    @property
    def tokens(self) -> int:
        """Number of tokens to be computed in addition to the prompt's."""
        return len(self.nodes)

    @property
    def longest(self) -> int:
        """Tokens of the longest draft."""
        return max((node.depth + 1 for node in self.nodes), default=0)

    def follow(self, drawn: Sequence[int]) -> list[int]:
        """The beginning of the answer: at least one token.

        drawn: the tokens drawn after the prompt and after each node.
        """
        tokens = [drawn[0]]
        at = self._below.get((None, drawn[0]))
        while at is not None:
            tokens.append(drawn[at + 1])
            at = self._below.get((at, tokens[-1]))
        return tokens
