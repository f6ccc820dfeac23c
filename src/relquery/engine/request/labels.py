"""Labels as a trie of tokens: where the answer is decided, and what the decisions say of each.

A node with several ways on is a *branch*. What a label's probability is can be told in two ways.

Normalised at each branch: the probabilities of a branch's ways are those of the allowed tokens
among themselves, and a label has the product along its path. With these a decoder that is held to
the labels draws them at temperature 1. Nodes with one way on decide nothing.

Jointly: a label has the product of what its tokens have among all tokens of the vocabulary, which
is what the free model gives to an answer that begins with it; these are then divided by their sum.
So nodes with one way on count too, all but what all labels begin with. Where another label goes on,
the label's end counts as one more token.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, fsum, inf, log
from typing import Literal

Normalization = Literal["joint", "branch"]
"""How the probabilities of labels come to sum to one: all together, or where they part."""
Weighed = Sequence[Sequence[float]]
"""By branch, the log-probabilities of its inner tokens and then of its allowed ones."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A node at which the next token is weighed.

    above: number of the branch before it; None for the first. stretch: the tokens since then, that
    of the node included; of the first, since the prompt. depth: tokens since the prompt. allowed:
    ids that may follow, sorted; the end tokens are among them where a label is complete that
    another one continues. inner: the last tokens of the stretch that are weighed too, each after
    those before it.
    """

    above: int | None
    stretch: tuple[int, ...]
    depth: int
    allowed: tuple[int, ...]
    inner: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Node:
    """A node, the labels below it, and the place that leads to it: a branch, and which token."""

    depth: int
    members: list[int]
    branch: int = -1
    column: int = 0


class LabelTrie:
    """The labels of one call. Never changes: all its requests share it.

    labels: different token sequences, none empty and none with an end token. end: ids that end an
    answer; without any, a label that another one continues is never the answer. normalization: of
    their probabilities.

    branches: each after the one above it. There is one even where nothing is to be decided, right
    after the prompt. tokens: to be computed beside the prompt's; depth: of these, how many follow
    one another at most. joint: whether tokens are weighed among all of the vocabulary, as joint
    normalisation needs them, and not among the allowed ones.
    """

    def __init__(
        self,
        labels: Sequence[tuple[int, ...]],
        end: Collection[int] = (),
        normalization: Normalization = "branch",
    ) -> None:
        assert labels, "there are no labels"
        assert all(labels), "a label has no tokens"
        assert len(set(labels)) == len(labels), "a label is there twice"
        assert not set(end).intersection(*map(set, labels)), "a label holds an end token"
        self.labels = tuple(labels)
        self.joint = normalization == "joint"
        self.branches: list[Branch] = []
        self._end = frozenset(end)
        # By label, the branches on its way with the columns that it goes on in: several for an end.
        self._ways: list[list[tuple[int, list[int]]]] = [[] for _ in labels]
        # By branch and column, the branch that it leads to, or ~ the label.
        self._leads: dict[tuple[int, int], int] = {}
        todo = [_Node(0, list(range(len(labels))))]
        while todo:
            todo += self._walk(todo.pop())
        self.tokens = sum(len(branch.stretch) for branch in self.branches)
        self.depth = max(branch.depth for branch in self.branches)

    def log_probabilities(self, weighed: Weighed) -> tuple[float, ...]:
        """Of each label, in the order in which they were given. Probabilities sum to one."""
        logs = [fsum(self._logs(way, weighed)) for way in self._ways]
        total = _log_sum(logs) if self.joint else 0.0
        return tuple(each - total for each in logs)

    def greedy(self, weighed: Weighed) -> tuple[int, ...]:
        """The label at which a decoder ends that takes the likeliest token at each branch.

        Of equally likely tokens it takes the one with the smallest id.
        """
        at = 0
        while at >= 0:
            ways = weighed[at][len(self.branches[at].inner) :]
            at = self._leads[at, max(range(len(ways)), key=ways.__getitem__)]
        return self.labels[~at]

    def _logs(self, way: Iterable[tuple[int, list[int]]], weighed: Weighed) -> Iterator[float]:
        """What is multiplied along the way of a label."""
        for at, columns in way:
            inner = len(self.branches[at].inner)
            yield from weighed[at][:inner]
            yield _log_sum([weighed[at][inner + column] for column in columns])

    def _walk(self, node: _Node) -> list[_Node]:
        """Take in a node; gives those below it."""
        place = node.branch, node.column
        if self.branches and len(node.members) == 1:
            return self._walk_alone(node)
        following: dict[int, list[int]] = {}
        for label in node.members:
            if len(self.labels[label]) > node.depth:
                following.setdefault(self.labels[label][node.depth], []).append(label)
        ended = [label for label in node.members if len(self.labels[label]) == node.depth]
        if ended and not self._end:
            self._ways[ended[0]].append((0, []))  # no way: none of the probability
            return [replace(node, members=[each for each in node.members if each not in ended])]
        alone = not self.branches and sum(map(len, following.values())) == 1
        if ended or len(following) > 1 or alone:
            self._leads[place] = len(self.branches)
            return self._branch(node, following, ended)
        ((_, members),) = following.items()
        return [_Node(node.depth + 1, members, *place)]

    def _walk_alone(self, node: _Node) -> list[_Node]:
        """Take in a node with one label below it, whose other tokens decide nothing more."""
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
        """Note a node as a branch; gives those below it."""
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
    """Logarithm of the sum of what these are the logarithms of."""
    most = max(logs, default=-inf)
    return most if len(logs) < 2 or most == -inf else most + log(fsum(exp(x - most) for x in logs))
