"""Prompts in the order in which they were sent: all in numbers, the first of each stage in full."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from relquery.backends.base import Backend
from relquery.errors import ConfigError
from relquery.prompt import Answer, Exchange, Nest, Prompt
from relquery.sql.record.reuse import reused_characters

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
            at = before + index
            row = (answer.prompt_tokens, answer.cached_tokens, answer.output_tokens)
            self.counts[3 * at : 3 * at + 3] = array("i", row)
            if at < self.most:
                self.full[at] = Sent(prompts[index], answer)

        return came


@dataclass(slots=True)
class Recording:
    """The prompts of a run. most: how many of each stage are kept in full."""

    most: int = DEFAULT
    stages: dict[str, StageRecord] = field(default_factory=dict)

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

    def stage(self, name: str) -> StageRecord:
        """The record of a stage."""
        return self.stages.setdefault(name, StageRecord(self.most))

    def finish(self, backend: Backend) -> None:
        """Find where the cached part of each prompt ends. Called when nothing is being asked."""
        for one in (one for stage in self.stages.values() for one in stage.full.values()):
            one.reused, one.is_exact = reused_characters(one.prompt, one.answer, backend)


def text_of(prompt: Prompt) -> str:
    """The text of a prompt, with a blank line between messages."""
    parts: list[str] = []
    for at, span in enumerate(prompt):
        if at and span.role is not prompt[at - 1].role:
            parts.append("\n\n")
        parts.append(_content(span.content))
    return "".join(parts)


def _content(content: object) -> str:
    match content:
        case str():
            return content
        case Nest(spans):
            return text_of(spans)
        case Exchange(prompt):
            return text_of(prompt)
    return "..."
