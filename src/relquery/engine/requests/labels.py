"""Labels as a trie of tokens, where the answer is decided and each label has its probability; and
likely answers as another, computed in the step that ends a prompt.

A node with several continuations is a *branch*. A label's probability can be defined in two ways.

Normalised at each branch: the probabilities at a branch are normalised among its allowed tokens,
and a label's probability is the product along its path. A decoder restricted to the labels draws
them with these probabilities at temperature 1. Nodes with one continuation decide nothing.

Jointly: a label's probability is the product of its tokens' probabilities among the whole
vocabulary, which is what the unconstrained model gives to an answer that begins with it. These are
then divided by their sum. So nodes with one continuation count too, except for the tokens that all
labels begin with. If another label continues a label, the label's end counts as one more token.

Likely answers are speculative decoding without a draft model: the texts that an answer is compared
with are the likely answers. The token drawn after the beginning of a draft is used if the answer
really begins that way, and then needs no step of its own. Drafts never change an answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, fsum, inf, log
from typing import Literal

Normalization = Literal["joint", "branch"]
"""How label probabilities are normalised: over all labels together, or at each branch."""
Weighed = Sequence[Sequence[float]]
"""Per branch, the log-probabilities of its inner tokens and then of its allowed tokens."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A node at which the next token is weighed.

    above: number of the branch before it; None for the first. stretch: the tokens since that
    branch, including the node's own; for the first branch, since the prompt. depth: tokens since
    the prompt. allowed: ids that may follow, sorted; they include the end tokens if a complete
    label is continued by another one. inner: the last tokens of the stretch that are weighed too,
    each after those before it.
    """

    above: int | None
    stretch: tuple[int, ...]
    depth: int
    allowed: tuple[int, ...]
    inner: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Node:
    """A node, the labels below it, and what leads to it: a branch and a token."""

    depth: int
    members: list[int]
    branch: int = -1
    column: int = 0


class LabelTrie:
    """The labels of one call. Never changes: all its requests share it.

    labels: distinct token sequences, not empty and without end tokens. end: ids that end an
    answer; without them, a label that another one continues is never the answer. normalization: of
    the labels' probabilities.

    branches: each after the one above it. Even if nothing has to be decided there is one, directly
    after the prompt. tokens: number to be computed in addition to the prompt's. depth: the longest
    path of these. joint: whether tokens are weighed among the whole vocabulary, as joint
    normalisation needs, instead of among the allowed tokens.
    """

    def __init__(
        self,
        labels: Sequence[tuple[int, ...]],
        end: Collection[int] = (),
        normalization: Normalization = "branch",
    ) -> None:
        assert labels, "there are no labels"
        assert all(labels), "a label has no tokens"
        assert len(set(labels)) == len(labels), "a label occurs twice"
        assert not set(end).intersection(*map(set, labels)), "a label contains an end token"
        self.labels = tuple(labels)
        self.joint = normalization == "joint"
        self.branches: list[Branch] = []
        self._end = frozenset(end)
        # Per label, the branches on its path and its columns in each; an end has several columns.
        self._ways: list[list[tuple[int, list[int]]]] = [[] for _ in labels]
        # Per branch and column, the branch that it leads to, or ~label.
        self._leads: dict[tuple[int, int], int] = {}
        todo = [_Node(0, list(range(len(labels))))]
        while todo:
            todo += self._walk(todo.pop())
        self.tokens = sum(len(branch.stretch) for branch in self.branches)
        self.depth = max(branch.depth for branch in self.branches)

    def log_probabilities(self, weighed: Weighed) -> tuple[float, ...]:
        """The log-probability of each label, in the given order. Probabilities sum to one."""
        logs = [fsum(self._logs(way, weighed)) for way in self._ways]
        total = _log_sum(logs) if self.joint else 0.0
        return tuple(each - total for each in logs)

    def greedy(self, weighed: Weighed) -> tuple[int, ...]:
        """The label that a greedy decoder reaches, taking the likeliest token at each branch.

        Of equally likely tokens it takes the one with the smallest id.
        """
        node = 0
        while node >= 0:
            ways = weighed[node][len(self.branches[node].inner) :]
            node = self._leads[node, max(range(len(ways)), key=ways.__getitem__)]
        return self.labels[~node]

    def reached(self, weighed: Mapping[int, Sequence[float]]) -> int | None:
        """The first branch that a greedy decoder reaches and that is not weighed; None if it
        reaches a label. For branches without inner tokens, as without joint normalisation.
        """
        node = 0
        while node >= 0:
            if node not in weighed:
                return node
            ways = weighed[node]
            node = self._leads[node, max(range(len(ways)), key=ways.__getitem__)]
        return None

    def _logs(self, way: Iterable[tuple[int, list[int]]], weighed: Weighed) -> Iterator[float]:
        """The logarithms of the factors along a label's path."""
        for node, columns in way:
            inner = len(self.branches[node].inner)
            yield from weighed[node][:inner]
            yield _log_sum([weighed[node][inner + column] for column in columns])

    def _walk(self, node: _Node) -> list[_Node]:
        """Process a node; returns the nodes below it."""
        place = node.branch, node.column
        if self.branches and len(node.members) == 1:
            return self._walk_alone(node)
        following: dict[int, list[int]] = {}
        for label in node.members:
            if len(self.labels[label]) > node.depth:
                following.setdefault(self.labels[label][node.depth], []).append(label)
        ended = [label for label in node.members if len(self.labels[label]) == node.depth]
        if ended and not self._end:
            self._ways[ended[0]].append((0, []))  # no column: probability zero
            return [replace(node, members=[each for each in node.members if each not in ended])]
        alone = not self.branches and sum(map(len, following.values())) == 1
        if ended or len(following) > 1 or alone:
            self._leads[place] = len(self.branches)
            return self._branch(node, following, ended)
        ((_, members),) = following.items()
        return [_Node(node.depth + 1, members, *place)]

    def _walk_alone(self, node: _Node) -> list[_Node]:
        """Process a node with a single label below it; its further tokens decide nothing."""
        place, (member,) = (node.branch, node.column), node.members
        label = self.labels[member]
        if not self.joint or len(label) == node.depth or len(self.labels) == 1:
            self._leads[place] = ~member
            return []
        self._leads[place] = len(self.branches)
        last = _Node(len(label) - 1, node.members, *place)
        return self._branch(last, {label[-1]: node.members}, [])

    def _branch(
        self, node: _Node, following: dict[int, list[int]], ended: list[int]
    ) -> list[_Node]:
        """Note a node as a branch; returns the nodes below it."""
        number, ends = len(self.branches), self._end if ended else frozenset()
        allowed = tuple(sorted(ends.union(following)))
        above = node.branch if self.branches else None
        top = 0 if above is None else self.branches[above].depth
        stretch = self.labels[node.members[0]][top : node.depth]
        inner = stretch[1:] if self.joint and above is not None else ()
        self.branches.append(Branch(above, stretch, node.depth, allowed, inner))
        columns = {token: column for column, token in enumerate(allowed)}
        for label in ended:
            self._ways[label].append((number, [columns[token] for token in ends]))
            self._leads |= {(number, columns[token]): ~label for token in ends}
        below = []
        for token, members in following.items():
            for label in members:
                self._ways[label].append((number, [columns[token]]))
            below.append(_Node(node.depth + 1, members, number, columns[token]))
        return below


def _log_sum(logs: Sequence[float]) -> float:
    """Logarithm of the sum of the exponentials (log-sum-exp)."""
    most = max(logs, default=-inf)
    return most if len(logs) < 2 or most == -inf else most + log(fsum(exp(x - most) for x in logs))


@dataclass(frozen=True, slots=True)
class DraftNode:
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
        self.nodes: list[DraftNode] = []
        self._below: dict[tuple[int | None, int], int] = {}
        for draft in drafts:
            node = None
            for depth, token in enumerate(draft):
                if (node, token) not in self._below:
                    self._below[node, token] = len(self.nodes)
                    self.nodes.append(DraftNode(node, token, depth))
                node = self._below[node, token]

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
        node = self._below.get((None, drawn[0]))
        while node is not None:
            tokens.append(drawn[node + 1])
            node = self._below.get((node, tokens[-1]))
        return tokens
