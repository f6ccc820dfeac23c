"""The calls that answer a question about groups of rows: one a group, or a tree of calls.

A group that does not fit in a prompt is cut into parts. Each part is asked about, then the answers
are put together, in as many levels as it takes (paper 002, section 6, has such a tree for a judge
over many candidates). How many calls that are is known before the first: a level above is laid out
for answers as long as they may be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from relquery.backends.base import Backend
from relquery.config import PromptForm
from relquery.ir.lower import lower
from relquery.ir.nodes import Seq, Text
from relquery.prompt import Prompt, Role, Sampling
from relquery.sql.inputs.lines import BREAK, Lines
from relquery.sql.inputs.prompt import SEPARATOR, SYSTEM

_CONTEXT = 32_768  # tokens of a prompt and its answer, where a provider does not say how many
_CHARACTERS = 4  # per token, where they cannot be counted
_PER_ANSWER = 8  # tokens around an answer in the prompt above it
_PER_ITEM = 2  # tokens between two items
_SPREAD = 1.25  # an answer may take more tokens in a prompt than it had when it was written
_DATA, _ANSWERS = "data", "answers for parts of the data"
_ITEMS = Lines.of(())
_PART = (
    "These are only some of the data. Your answer will be put together with those for the others."
)


@dataclass(frozen=True, slots=True)
class Tree:
    """A call. items: the data of a part, as JSON texts. below: the calls whose answers it reads,
    by their place in the forest. is_part: whether its answer is read by another call."""

    items: tuple[str, ...]
    below: tuple[int, ...]
    is_part: bool


@dataclass(slots=True)
class Forest:
    """Distinct calls for some groups, each after those that it reads.

    form: how data are written. roots: of each group; None for one that cannot be answered, for
    which `trouble` says why.
    """

    question: str
    trouble: str
    form: PromptForm = "json"
    trees: list[Tree] = field(default_factory=list)
    roots: list[int | None] = field(default_factory=list)
    _known: dict[Tree, int] = field(default_factory=dict)

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
        room = Room.of(question, sampling, backend, form)
        forest = cls(question, room.trouble, form)
        for group in groups:
            parts = room.parts(group)
            if not parts or (len(parts) > 1 and room.answers < 2):
                forest.roots.append(None)
                continue
            level = [forest._add(Tree(part, (), len(parts) > 1)) for part in parts]
            while len(level) > 1:
                bounds = _bounds(len(level), room.answers)
                level = [
                    forest._add(Tree((), tuple(level[start:end]), len(bounds) > 1))
                    if end - start > 1
                    else level[start]
                    for start, end in bounds
                ]
            forest.roots.append(level[0])
        return forest

    def levels(self) -> Iterator[list[int]]:
        """The calls, level by level: those that read no answer, then those that read theirs."""
        height: list[int] = []
        for tree in self.trees:
            height.append(1 + max((height[one] for one in tree.below), default=-1))
        for level in range(max(height, default=-1) + 1):
            yield [at for at, one in enumerate(height) if one == level]

    def prompt(self, at: int, answers: Sequence[str]) -> Prompt:
        """The prompt of a call. answers: those that it reads, in order."""
        tree = self.trees[at]
        if tree.below:
            texts = [json.dumps(answer, ensure_ascii=False) for answer in answers]
            return _prompt(self.question, texts, _ANSWERS, self.form, is_part=tree.is_part)
        return _prompt(self.question, tree.items, _DATA, self.form, is_part=tree.is_part)

    def _add(self, tree: Tree) -> int:
        at = self._known.setdefault(tree, len(self.trees))
        if at == len(self.trees):
            self.trees.append(tree)
        return at


@dataclass(frozen=True, slots=True)
class Room:
    """How much fits in a prompt. tokens: of data. answers: how many answers of other calls."""

    question: str
    tokens: int
    answers: int
    longest: int
    backend: Backend
    sampling: Sampling
    around: int
    form: PromptForm

    @classmethod
    def of(
        cls, question: str, sampling: Sampling, backend: Backend, form: PromptForm = "json"
    ) -> Room:
        """The room beside a question."""
        limits = [size for size in (backend.context, backend.cache_tokens) if size is not None]
        longest = min(limits, default=_CONTEXT) - sampling.max_tokens
        empty = _prompt(question, [], _ANSWERS, form, is_part=True)
        (around,) = _counted([empty], sampling, backend)
        tokens = longest - around if around else 0
        each = int(sampling.max_tokens * _SPREAD) + _PER_ANSWER
        return cls(question, tokens, tokens // each, longest, backend, sampling, around, form)

    @property
    def trouble(self) -> str:
        """Why a group that does not fit in a prompt cannot be answered, and what helps."""
        # Both answers, and the one to come, with max_tokens each.
        room = self.longest + self.sampling.max_tokens - self.around - 2 * _PER_ANSWER
        fits = int(room / (2 * _SPREAD + 1))
        remedy = f"Set max_tokens := {fits}, or use" if fits > 0 and self.around else "Use"
        return (
            f"The group does not fit in a prompt, and the model's context has no room to put two "
            f"answers of {self.sampling.max_tokens} tokens together. {remedy} a model with a "
            "longer context."
        )

    def parts(self, items: Sequence[str]) -> list[tuple[str, ...]]:
        """The items in parts that fit, in order; an item that does not fit alone is cut.

        There are no parts if the question itself leaves no room.
        """
        if self.tokens <= 0:
            return []
        parts: list[list[str]] = [[]]
        used = 0
        for item, size in self._sized(items):
            if parts[-1] and used + size > self.tokens:
                parts.append([])
                used = 0
            parts[-1].append(item)
            used += size
        return [tuple(part) for one in parts for part in self._halved(one)]

    def _halved(self, part: list[str]) -> list[list[str]]:
        """The part, or halves of it, for tokens that were not foreseen where items meet."""
        if len(part) == 1 or self._fits(part):
            return [part]
        half = len(part) // 2
        return [*self._halved(part[:half]), *self._halved(part[half:])]

    def _fits(self, items: Sequence[str]) -> bool:
        prompt = _prompt(self.question, items, _DATA, self.form, is_part=True)
        (size,) = _counted([prompt], self.sampling, self.backend)
        return 0 < size <= self.longest

    def _sized(self, items: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Each item, or its pieces, with the tokens that it takes in a prompt."""
        prompts = [_prompt(self.question, [item], _DATA, self.form, is_part=True) for item in items]
        counts = _counted(prompts, self.sampling, self.backend)
        for item, count in zip(items, counts, strict=True):
            size = max(1, count - self.around) + _PER_ITEM
            if count > 0 and size <= self.tokens:
                yield item, size
            elif (pieces := _cut(item)) is None:
                yield item, self.tokens
            else:
                yield from self._sized(pieces)


def _cut(item: str) -> list[str] | None:
    """The text of an item in two pieces, cut at a space where there is one near the middle."""
    value = json.loads(item)
    text = value if isinstance(value, str) else item
    if len(text) < 2:
        return None
    half = text.rfind(" ", len(text) // 4, len(text) // 2 + 1) + 1 or len(text) // 2
    return [json.dumps(one, ensure_ascii=False) for one in (text[:half], text[half:])]


def _prompt(
    question: str, items: Sequence[str], what: str, form: PromptForm, *, is_part: bool
) -> Prompt:
    more = f"\n{_PART}" if is_part else ""
    if form == "lines":
        above = "" if what == _DATA else f"{what.capitalize()}:\n"
        data = Text(BREAK.join(map(_line, items)))
        asked = Text(f"{question}{more}\n\n{above}")
        return lower(Seq((asked, data)))
    head = f"Answer the below query:\n{question}{more}\n\nGiven the following {what}:\n[\n"
    return lower(Seq((Text(SYSTEM, Role.SYSTEM), Text(head), Text(f"{SEPARATOR.join(items)}\n]"))))


def _line(item: str) -> str:
    """An item, a JSON text, as it is sent in lines."""
    is_text = item.startswith('"')
    return _ITEMS.value("string" if is_text else "json", json.loads(item) if is_text else item)


def _counted(prompts: Sequence[Prompt], sampling: Sampling, backend: Backend) -> list[int]:
    counts = backend.prompt_tokens(prompts, sampling)
    if counts is not None:
        return counts
    return [sum(len(str(span.content)) for span in prompt) // _CHARACTERS + 1 for prompt in prompts]


def _bounds(count: int, most: int) -> list[tuple[int, int]]:
    """The fewest runs of at most `most` of `count` things; sizes differ by at most 1."""
    runs = -(-count // most)
    ends = [-(-index * count // runs) for index in range(runs + 1)]
    return list(pairwise(ends))
