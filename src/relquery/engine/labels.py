"""Labels as a trie of tokens: where the answer is decided, and what the decisions say of each.

A node with several ways on is a *branch*. The probabilities of its ways are those of the allowed
tokens among themselves, and a label has the product along its path: the probability with which a
decoder that is held to the labels draws it at temperature 1. Nodes with one way on decide nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import exp, fsum, inf, log

Weighed = Sequence[Sequence[float]]
"""By branch, the log-probabilities of its allowed tokens."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A node at which the next token is chosen.

    above: number of the branch before it; None for the first. stretch: the tokens since then, that
    of the node included; of the first, since the prompt. depth: tokens since the prompt. allowed:
    ids that may follow, sorted; the end tokens are among them where a label is complete that
    another one continues.
    """

    above: int | None
    stretch: tuple[int, ...]
    depth: int
    allowed: tuple[int, ...]


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
    answer; without any, a label that another one continues is never the answer.

    branches: each after the one above it. There is one even where nothing is to be decided, right
    after the prompt. tokens: to be computed beside the prompt's.
    """

    def __init__(self, labels: Sequence[tuple[int, ...]], end: Collection[int] = ()) -> None:
        assert labels, "there are no labels"
        assert all(labels), "a label has no tokens"
        assert len(set(labels)) == len(labels), "a label is there twice"
        assert not set(end).intersection(*map(set, labels)), "a label holds an end token"
        self.labels = tuple(labels)
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

    def log_probabilities(self, weighed: Weighed) -> tuple[float, ...]:
        """Of each label, in the order in which they were given. Probabilities sum to one."""
        return tuple(
            fsum(_log_sum([weighed[at][column] for column in columns]) for at, columns in way)
            for way in self._ways
        )

    def greedy(self, weighed: Weighed) -> tuple[int, ...]:
        """The label at which a decoder ends that takes the likeliest token at each branch.

        Of equally likely tokens it takes the one with the smallest id.
        """
        at = 0
        while at >= 0:
            at = self._leads[at, max(range(len(weighed[at])), key=weighed[at].__getitem__)]
        return self.labels[~at]

    def _walk(self, node: _Node) -> list[_Node]:
        """Take in a node; gives those below it."""
        place = node.branch, node.column
        if self.branches and len(node.members) == 1:
            self._leads[place] = ~node.members[0]
            return []
        following: dict[int, list[int]] = {}
        for label in node.members:
            if len(self.labels[label]) > node.depth:
                following.setdefault(self.labels[label][node.depth], []).append(label)
        ended = [label for label in node.members if len(self.labels[label]) == node.depth]
        if ended and not self._end:
            self._ways[ended[0]].append((0, []))  # no way: none of the probability
            ended = []
        alone = not self.branches and sum(map(len, following.values())) == 1
        if ended or len(following) > 1 or alone:
            self._leads[place] = len(self.branches)
            return self._branch(node, following, ended)
        ((_, members),) = following.items()
        return [_Node(node.depth + 1, members, *place)]

    def _branch(
        self, node: _Node, following: dict[int, list[int]], ended: list[int]
    ) -> list[_Node]:
        """Note a node as a branch; gives those below it."""
        number, ends = len(self.branches), self._end if ended else frozenset()
        allowed = tuple(sorted(ends.union(following)))
        above = node.branch if self.branches else None
        top = 0 if above is None else self.branches[above].depth
        stretch = self.labels[node.members[0]][top : node.depth]
        self.branches.append(Branch(above, stretch, node.depth, allowed))
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
