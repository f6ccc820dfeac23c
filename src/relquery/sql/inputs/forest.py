"""The calls that answer a question about groups of rows: one a group, or a tree of calls.

A group that does not fit in a prompt is cut into parts. Each part is asked about, then the answers
are put together, in as many levels as it takes (paper 002, section 6, has such a tree for a judge
over many candidates). How many calls that are is known before the first: a level above is laid out
for answers as long as they may be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from relquery.backends.base import Backend
from relquery.config import PromptForm
from relquery.ir.lower import lower
from relquery.ir.nodes import Seq, Text
from relquery.prompt import Prompt, Role, Sampling
from relquery.sql.inputs.cells import JSON, TEXT
from relquery.sql.inputs.prompt import SYSTEM

_CONTEXT = 32_768  # tokens of a prompt and its answer, where a provider does not say how many
_CHARACTERS = 4  # per token, where they cannot be counted
_PER_ANSWER = 8  # tokens around an answer in the prompt above it
_PER_ITEM = 2  # tokens between two items
_SPREAD = 1.25  # an answer may take more tokens in a prompt than it had when it was written
_DATA, _ANSWERS = "data", "answers for parts of the data"
_PART = (
    "These are only some of the data. Your answer will be put together with those for the others."
)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallTree:
    """A call. items: the data of a part, as JSON texts. below: the calls whose answers it reads,
    by their place in the forest. is_part: whether its answer is read by another call. level: how
    many calls are below one another."""

    items: tuple[str, ...]
    below: tuple[int, ...]
    is_part: bool
    level: int = 0


@dataclass(slots=True)
class Forest:
    """Distinct calls for some groups, each after those that it reads.

    form: how data are written. roots: of each group; None for one that cannot be answered, for
    which `trouble` says why. room: tokens of data that fit in a prompt. most_answers: how many
    answers of other calls fit.
    """

    question: str
    sampling: Sampling
    backend: Backend
    form: PromptForm = "json"
    trees: list[CallTree] = field(default_factory=list)
    roots: list[int | None] = field(default_factory=list)
    room: int = field(init=False)
    most_answers: int = field(init=False)
    _longest: int = field(init=False)
    _around: int = field(init=False)
    _known: dict[CallTree, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        limits = [self.backend.limits.context, self.backend.limits.cache_tokens]
        longest = min((size for size in limits if size is not None), default=_CONTEXT)
        self._longest = longest - self.sampling.max_tokens
        (self._around,) = self._counted([self._prompt([], _ANSWERS, is_part=True)])
        self.room = self._longest - self._around if self._around else 0
        self.most_answers = self.room // (int(self.sampling.max_tokens * _SPREAD) + _PER_ANSWER)

    @classmethod
    def of(
        cls,
        question: str,
        groups: Sequence[Sequence[str]],
        sampling: Sampling,
        backend: Backend,
        form: PromptForm = "json",
    ) -> Forest:
        """Lay out the calls for groups of items, given as JSON texts."""
        forest = cls(question, sampling, backend, form)
        forest.roots = [forest._root(group) for group in groups]
        return forest

    def _root(self, group: Sequence[str]) -> int | None:
        parts = self._parts(group)
        if not parts or (len(parts) > 1 and self.most_answers < 2):
            return None
        calls = [self._add(CallTree(part, (), len(parts) > 1)) for part in parts]
        level = 0
        while len(calls) > 1:
            level += 1
            # The fewest runs of calls whose answers fit; their sizes differ by at most 1.
            runs = -(-len(calls) // self.most_answers)
            ends = [-(-index * len(calls) // runs) for index in range(runs + 1)]
            read = [tuple(calls[ends[index] : ends[index + 1]]) for index in range(runs)]
            calls = [
                self._add(CallTree((), below, runs > 1, level)) if len(below) > 1 else below[0]
                for below in read
            ]
        return calls[0]

    def _add(self, tree: CallTree) -> int:
        number = self._known.setdefault(tree, len(self.trees))
        if number == len(self.trees):
            self.trees.append(tree)
        return number

    def levels(self) -> Iterator[list[int]]:
        """The calls, level by level: those that read no answer, then those that read theirs."""
        for level in range(max((tree.level for tree in self.trees), default=-1) + 1):
            yield [index for index, tree in enumerate(self.trees) if tree.level == level]

    def prompt(self, at: int, answers: Sequence[str]) -> Prompt:
        """The prompt of a call. answers: those that it reads, in order."""
        tree = self.trees[at]
        if not tree.below:
            return self._prompt(tree.items, _DATA, is_part=tree.is_part)
        texts = [json.dumps(answer, ensure_ascii=False) for answer in answers]
        return self._prompt(texts, _ANSWERS, is_part=tree.is_part)

    @property
    def trouble(self) -> str:
        """Why a group that does not fit in a prompt cannot be answered, and what helps."""
        # Both answers, and the one to come, with max_tokens each.
        room = self._longest + self.sampling.max_tokens - self._around - 2 * _PER_ANSWER
        fits = int(room / (2 * _SPREAD + 1))
        remedy = f"Set max_tokens := {fits}, or use" if fits > 0 and self._around else "Use"
        return (
            f"The group does not fit in a prompt, and the model's context has no room to put two "
            f"answers of {self.sampling.max_tokens} tokens together. {remedy} a model with a "
            "longer context."
        )

    def _parts(self, items: Sequence[str]) -> list[tuple[str, ...]]:
        """The items in parts that fit, in order; an item that does not fit alone is cut.

        There are no parts if the question itself leaves no room.
        """
        if self.room <= 0:
            return []
        parts: list[list[str]] = [[]]
        used = 0
        for item, size in self._sized(items):
            if parts[-1] and used + size > self.room:
                parts.append([])
                used = 0
            parts[-1].append(item)
            used += size
        # Where items meet there may be tokens that were not foreseen.
        return [half for part in parts for half in halved(tuple(part), self._fits)]

    def _fits(self, items: Sequence[str]) -> bool:
        (size,) = self._counted([self._prompt(items, _DATA, is_part=True)])
        return 0 < size <= self._longest

    def _sized(self, items: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Each item, or its pieces, with the tokens that it takes in a prompt."""
        prompts = [self._prompt([item], _DATA, is_part=True) for item in items]
        for item, count in zip(items, self._counted(prompts), strict=True):
            size = max(1, count - self._around) + _PER_ITEM
            if count > 0 and size <= self.room:
                yield item, size
            elif (pieces := _cut(item)) is None:
                yield item, self.room
            else:
                yield from self._sized(pieces)

    def _prompt(self, items: Sequence[str], what: str, *, is_part: bool) -> Prompt:
        question = f"{self.question}\n{_PART}" if is_part else self.question
        if self.form != "json":
            above = "" if what == _DATA else f"{what.capitalize()}:\n"
            data = TEXT.separator.join(map(_line, items))
            return lower(Seq((Text(f"{question}\n\n{above}"), Text(data))))
        head = f"Answer the below query:\n{question}\n\nGiven the following {what}:\n[\n"
        data = f"{JSON.separator.join(items)}\n]"
        return lower(Seq((Text(SYSTEM, Role.SYSTEM), Text(head), Text(data))))

    def _counted(self, prompts: Sequence[Prompt]) -> list[int]:
        """The tokens of prompts; 0 for one that the backend refuses."""
        counts = self.backend.insight.prompt_tokens(prompts, self.sampling)
        if counts is not None:
            return counts
        sizes = (sum(len(str(span.content)) for span in prompt) for prompt in prompts)
        return [size // _CHARACTERS + 1 for size in sizes]


def halved(items: tuple[T, ...], fits: Callable[[tuple[T, ...]], bool]) -> Iterator[tuple[T, ...]]:
    """The items, or halves of them that fit in a prompt, in order; one alone counts as fitting."""
    if len(items) < 2 or fits(items):
        yield items
        return
    half = len(items) // 2
    yield from halved(items[:half], fits)
    yield from halved(items[half:], fits)


def _cut(item: str) -> list[str] | None:
    """The text of an item in two pieces, cut at a space where there is one near the middle."""
    value = json.loads(item)
    text = value if isinstance(value, str) else item
    if len(text) < 2:
        return None
    half = text.rfind(" ", len(text) // 4, len(text) // 2 + 1) + 1 or len(text) // 2
    return [json.dumps(part, ensure_ascii=False) for part in (text[:half], text[half:])]


def _line(item: str) -> str:
    """An item, a JSON text, as it is sent in a line."""
    is_text = item.startswith('"')
    return TEXT.value("string" if is_text else "json", json.loads(item) if is_text else item)
