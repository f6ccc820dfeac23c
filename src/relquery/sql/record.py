"""The part of a prompt's text that was served from the cache."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from relquery.arrays import TokenIds
from relquery.backends.base import Backend
from relquery.errors import ConfigError, RequestError
from relquery.prompt import Answer, Exchange, Nest, Prompt, Reuse


def reused_characters(prompt: Prompt, answer: Answer, backend: Backend) -> tuple[int | None, bool]:
    """(characters of the text that the cached tokens cover, whether that is exact).

    Exact with the local engine's tokenizer, otherwise in proportion to the tokens. None if some
    spans are independent, because the cached part is then not at the beginning.
    """
    texts = [span.content for span in prompt if isinstance(span.content, str)]
    if len(texts) < len(prompt) or any(span.reuse is not Reuse.PREFIX for span in prompt):
        return None, False
    size = sum(map(len, texts))
    if not answer.cached_tokens or not answer.prompt_tokens:
        return 0, True
    whole, cached = _tokens(prompt, backend), answer.cached_tokens
    if whole is None or len(whole) != answer.prompt_tokens:
        return round(size * cached / answer.prompt_tokens), False

    def covers(characters: int) -> bool:
        part = _tokens(_cut(prompt, characters), backend)
        return part is not None and np.array_equal(part[:cached], whole[:cached])

    return bisect_left(range(size), True, key=covers), True


def _cut(prompt: Prompt, characters: int) -> Prompt:
    """The prompt with only the first characters of its text."""
    spans, left = [], characters
    for span in prompt:
        assert isinstance(span.content, str)
        spans.append(replace(span, content=span.content[:left]))
        left = max(0, left - len(span.content))
    return tuple(spans)


def _tokens(prompt: Prompt, backend: Backend) -> TokenIds | None:
    try:
        runs = backend.insight.runs(prompt)
    except RequestError:
        return None
    return runs[0] if runs is not None and len(runs) == 1 else None


DEFAULT = 200
"""Prompts of a stage that are kept in full."""


@dataclass(slots=True)
class Sent:
    """A prompt that was sent.

    reused: how many characters at the beginning of its text were cached; None if the cached part is
    not at the beginning. is_exact: True if the tokenizer told, False if it was estimated from the
    number of tokens.
    """

    prompt: Prompt
    answer: Answer
    reused: int | None = None
    is_exact: bool = False

    @property
    def text(self) -> str:
        """All that the model is sent, without the chat template."""
        return text_of(self.prompt)


@dataclass(slots=True)
class StageRecord:
    """The prompts of one stage.

    most: how many are kept in full. full: those, by their place in the order sent. counts: three
    numbers per prompt: its tokens, how many of them were cached, and the tokens of its answer;
    zeros if there was no answer.
    """

    most: int
    full: dict[int, Sent] = field(default_factory=dict)
    counts: array[int] = field(default_factory=lambda: array("i"))

    @property
    def sent(self) -> int:
        """How many prompts were sent."""
        return len(self.counts) // 3

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """(tokens, cached, tokens of the answer) of each prompt."""
        numbers = iter(self.counts)
        return zip(numbers, numbers, numbers, strict=True)

    def batch(self, prompts: Sequence[Prompt]) -> Callable[[int, Answer], None]:
        """Add prompts that are being sent. Returns a function for the index and answer of each."""
        before = self.sent
        self.counts.extend([0, 0, 0] * len(prompts))

        def came(index: int, answer: Answer) -> None:
            place = before + index
            row = (answer.prompt_tokens, answer.cached_tokens, answer.output_tokens)
            self.counts[3 * place : 3 * place + 3] = array("i", row)
            if place < self.most:
                self.full[place] = Sent(prompts[index], answer)

        return came


@dataclass(slots=True)
class Recording:
    """The prompts of a run. most: how many of each stage are kept in full. backends: by stage."""

    most: int = DEFAULT
    stages: dict[str, StageRecord] = field(default_factory=dict)
    backends: dict[str, Backend] = field(default_factory=dict)

    @classmethod
    def of(cls, record: bool | int) -> Recording | None:
        """None for False. Raises ConfigError for what is neither a boolean nor a number."""
        if not isinstance(record, int) or record < 0:
            raise ConfigError(
                f"record is {record!r}; it must be True, False, or the number of prompts of each "
                "stage to keep in full."
            )
        if record is False:
            return None
        return cls() if record is True else cls(record)

    def stage(self, name: str, backend: Backend) -> StageRecord:
        """The record of a stage, which asks a backend."""
        self.backends[name] = backend
        return self.stages.setdefault(name, StageRecord(self.most))

    def finish(self) -> None:
        """Find where the cached part of each prompt ends. Called when nothing is being asked."""
        for name, stage in self.stages.items():
            for sent in stage.full.values():
                characters = reused_characters(sent.prompt, sent.answer, self.backends[name])
                sent.reused, sent.is_exact = characters


def text_of(prompt: Prompt) -> str:
    """The text of a prompt, with a blank line between messages."""
    parts: list[str] = []
    for index, span in enumerate(prompt):
        if index and span.role is not prompt[index - 1].role:
            parts.append("\n\n")
        match span.content:
            case str(text):
                parts.append(text)
            case Nest(inner) | Exchange(inner):
                parts.append(text_of(inner))
            case _:
                parts.append("...")
    return "".join(parts)
