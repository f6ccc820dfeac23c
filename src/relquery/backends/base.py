"""What every backend offers: the embedded engine, a server, a provider's API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from relquery.arrays import TokenIds
from relquery.prompt import Answer, Prompt, Sampling

Answers = Iterator[tuple[int, Answer]]
Heard = Callable[[int, Answer], None]


@dataclass(frozen=True, slots=True)
class SpanState:
    """A piece of a prompt: how its text begins, its tokens, and how many the cache would serve.

    depth: in how many independent spans, one in another, it stands; 0 for the prompt's own text.
    span: number of the independent span, from 1 in the prompt's order, spans in spans included.
    source: where the cached ones are: "cache"; "memory" or "disk" for a store beside it; "" for
    none.
    """

    preview: str
    tokens: int
    cached: int
    depth: int
    span: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """What a provider has been asked since the backend was opened, and what that took.

    calls: requests that were sent. retries: of those, not the first of their prompt. failures:
    prompts that ended without an answer. prompt_tokens, cached_tokens, written_tokens and
    output_tokens: see Answer. waiting: seconds until more is sent, because of the provider's
    limits; 0 for now. usd: None where the price is not known.
    """

    calls: int
    retries: int
    failures: int
    prompt_tokens: int
    cached_tokens: int
    written_tokens: int
    output_tokens: int
    waiting: float
    usd: float | None


class Backend(ABC):
    """Answers prompts. `name` and `answer` are enough; the rest has a default.

    What a backend can tell before it is asked, without computing an answer, is None where it does
    not know.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The model's name as a person would write it, for reports."""

    @abstractmethod
    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """Serve all prompts, in the order given where order matters for reuse.

        Yields (index into prompts, answer) as answers finish, each index exactly once. A prompt
        that cannot be served yields an answer with an error. Closing the iterator cancels what
        is still open. Requests of one call form one relQuery. Without a seed, prompts that are
        equal are drawn one by one.
        """

    def deliver(self, prompts: Sequence[Prompt], sampling: Sampling, heard: Heard) -> Answers:
        """As `answer`; `heard` is told of each answer once, as soon as it is there.

        That is before the answer is taken, in a thread of the backend, where it has one.
        """
        answers = self.answer(prompts, sampling)
        with cancelling(answers):
            for index, answer in answers:
                heard(index, answer)
                yield index, answer

    def check(self, sampling: Sampling) -> None:
        """Raise what `answer` would raise for this sampling, whatever the prompts.

        So a query of several calls is refused before the first of them.
        """
        del sampling

    def note_known(self, sampling: Sampling) -> None:
        """Learn that other prompts with this sampling have answers, from a ledger.

        Those that are asked next may all fail: then it is each one's own fault.
        """
        del sampling

    def close(self) -> None:
        """Free what the backend holds. The backend cannot be used afterwards."""
        return

    def known_as(self) -> tuple[str, ...]:
        """Names by which the ledger knows the model: the one to store under, then older ones.

        More than `name` where a name does not tell all models apart.
        """
        return (self.name,)

    @property
    def price_share(self) -> float:
        """What calls cost, as a part of the model's price for live ones."""
        return 1.0

    def tally(self) -> Tally | None:
        """What was sent so far; any thread may ask while others wait for answers."""
        return None

    @property
    def cache_tokens(self) -> int | None:
        """Tokens that the cache of attention states holds."""
        return None

    @property
    def block_tokens(self) -> int | None:
        """Tokens of the blocks in which that cache serves what prompts begin with; 0 if it does
        not.
        """
        return None

    @property
    def has_modules(self) -> bool:
        """Whether independent spans are computed by themselves, and their states reused."""
        return False

    @property
    def context(self) -> int | None:
        """Positions that the model has for a prompt and its answer."""
        return None

    @property
    def token_bytes(self) -> int | None:
        """Bytes that the states of one token take in that cache."""
        return None

    @property
    def concurrency(self) -> int | None:
        """Prompts that a server is asked at once; None where the backend is no client of one."""
        return None

    @property
    def requests_per_minute(self) -> float | None:
        """Requests that a server takes a minute, as far as is known."""
        return None

    @property
    def tokens_per_minute(self) -> float | None:
        """Tokens that a server takes a minute, those of answers too, as far as is known."""
        return None

    def one_pass(self, sampling: Sampling) -> bool | None:
        """Whether an answer takes no forward pass beside those of its prompt.

        One that is only compared with some texts may take more where it begins like one of them,
        but in other tokens than the tokenizer gives for that text.
        """
        del sampling
        return None

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int] | None:
        """Tokens of each prompt as it would be sent; 0 for one that would be refused."""
        del prompts, sampling
        return None

    def predict(
        self, prompt_tokens: Sequence[int], sampling: Sampling, cached: int = 0
    ) -> float | None:
        """Seconds until the last answer, at most: answers as long as they may be.

        prompt_tokens: of each prompt. cached: how many of all of them the cache serves.
        """
        del prompt_tokens, sampling, cached
        return None

    def runs(self, prompt: Prompt) -> list[TokenIds] | None:
        """Token ids of a prompt's own text with its template: before, between and after its
        independent spans, so one run more than it has such spans.

        Raises RequestError for a prompt that cannot be rendered. None where spans are not used.
        """
        del prompt
        return None

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Compute the states of prompts, so that later prompts with the same spans find them.

        Raises RequestError for a prompt that cannot be served. Does nothing where no states are
        kept, or where they cannot be kept on purpose.
        """
        del prompts

    def inspect(self, prompt: Prompt) -> tuple[SpanState, ...] | None:
        """The pieces of a prompt in order, and how much of each the cache would serve now.

        Raises RequestError for a prompt that cannot be rendered.
        """
        del prompt
        return None


@runtime_checkable
class Answering(Protocol):
    """What tells an object with a name that answers prompts; see Backend."""

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend.answer."""


class Adopted(Backend):
    """An object that is not a Backend and answers like one."""

    def __init__(self, given: Any) -> None:
        self._given = given

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self._given.name)

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend.answer."""
        answers: Answers = self._given.answer(prompts, sampling)
        return answers


@runtime_checkable
class _Closeable(Protocol):
    def close(self) -> None: ...


@contextmanager
def cancelling(answers: Answers) -> Iterator[None]:
    """A block after which answers that were not taken are cancelled."""
    try:
        yield
    finally:
        cancel(answers)


def cancel(answers: Answers) -> None:
    """Close answers that can be closed: a list's iterator has nothing to cancel."""
    if isinstance(answers, _Closeable):
        answers.close()
