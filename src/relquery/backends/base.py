"""The interface of every backend: the embedded engine, a server, a provider's API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

from relquery.arrays import TokenIds
from relquery.prompt import Answer, Prompt, Sampling

Answers = Iterator[tuple[int, Answer]]
OnAnswer = Callable[[int, Answer], None]
"""Gets the index of a prompt, and its answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Properties of a backend that plans go by; None where it is not known."""

    context: int | None = None
    """Positions that the model has for a prompt and its answer."""
    cache_tokens: int | None = None
    """Tokens that the cache of attention states holds."""
    block_tokens: int | None = None
    """Tokens of the blocks in which that cache serves what prompts begin with; 0 if it does not."""
    has_modules: bool = False
    """Whether independent spans are computed by themselves, and their states reused."""
    concurrency: int | None = None
    """Prompts that a server is asked at once; None where the backend is no client of one."""
    requests_per_minute: float | None = None
    """Requests that a server takes."""
    tokens_per_minute: float | None = None
    """Tokens that a server takes, those of answers too."""
    price_share: float = 1.0
    """What calls cost, as a part of the model's price for live ones."""


@dataclass(frozen=True, slots=True)
class SpanState:
    """A piece of a prompt, and how much of it the cache would serve."""

    preview: str
    """How its text begins."""
    tokens: int
    cached: int
    depth: int
    """In how many independent spans, one in another, it stands; 0 for the prompt's own text."""
    span: int = 0
    """Number of the independent span, from 1 in the prompt's order, spans in spans included."""
    source: str = ""
    """Where the cached ones are: "cache"; "memory" or "disk" for a store beside it; "" for none."""


class Insight:
    """Figures that an engine of ours tells without computing an answer, and no server does.

    This one knows nothing: it is asked nothing, and its methods give None.
    """

    def ask(self, question: str, *given: Any) -> Any:
        """What an engine tells between two of its steps; None where there is no engine."""
        del question, given

    def one_pass(self, sampling: Sampling) -> bool | None:
        """Whether an answer takes no forward pass beside those of its prompt.

        One that is only compared with some texts may take more where it begins like one of them,
        but in other tokens than the tokenizer gives for that text.
        """
        answer: bool | None = self.ask("one_pass", sampling)
        return answer

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int] | None:
        """Tokens of each prompt as it would be sent; 0 for one that would be refused."""
        counts: list[int] | None = self.ask("prompt_tokens", list(prompts), sampling)
        return counts

    def predict(
        self, prompt_tokens: Sequence[int], sampling: Sampling, cached: int = 0
    ) -> float | None:
        """Seconds until the last answer, at most: answers as long as they may be.

        prompt_tokens: of each prompt. cached: how many of all of them the cache serves.
        """
        seconds: float | None = self.ask("predict", prompt_tokens, sampling, cached)
        return seconds

    def runs(self, prompt: Prompt) -> list[TokenIds] | None:
        """Token ids of a prompt's own text with its template: before, between and after its
        independent spans, so one run more than it has such spans.

        Raises RequestError for a prompt that cannot be rendered.
        """
        token_ids: list[TokenIds] | None = self.ask("runs", prompt)
        return token_ids

    def inspect(self, prompt: Prompt) -> tuple[SpanState, ...] | None:
        """The pieces of a prompt in order, and how much of each the cache would serve now.

        Raises RequestError for a prompt that cannot be rendered.
        """
        states: tuple[SpanState, ...] | None = self.ask("inspect", prompt)
        return states

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Compute the states of prompts, so that later prompts with the same spans find them.

        Raises RequestError for a prompt that cannot be served. Does nothing where no states are
        kept, or where they cannot be kept on purpose.
        """
        del prompts


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of what a provider was asked since the backend was opened, and of what that took.

    For the numbers of tokens see Answer.
    """

    calls: int
    """Requests that were sent."""
    retries: int
    """Of those, not the first of their prompt."""
    failures: int
    """Prompts that ended without an answer."""
    prompt_tokens: int
    cached_tokens: int
    written_tokens: int
    output_tokens: int
    waiting: float
    """Seconds until more is sent, because of the provider's limits; 0 for now."""
    usd: float | None
    """None where the price is not known."""


class Backend(ABC):
    """Answers prompts. `name` and `answer` are enough; the rest has a default."""

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
        equal are drawn one by one. A backend with threads of its own gives an AnswerStream.
        """

    def check(self, sampling: Sampling) -> None:
        """Raise what `answer` would raise for this sampling, whatever the prompts.

        So a query of several calls is refused before the first of them.
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

    def tally(self) -> Tally | None:
        """What was sent so far; any thread may ask while others wait for answers."""
        return None

    @property
    def limits(self) -> Limits:
        """What a plan goes by, as far as it is known now."""
        return Limits()

    @property
    def insight(self) -> Insight:
        """What can be told of prompts without asking them."""
        return Insight()


class LazyBackend(Backend):
    """A backend opened at its first call: a query is checked before a model is loaded for it.

    Each member raises what opening raises; closing it before the first call opens nothing.
    """

    def __init__(self, load: Callable[[], Backend]) -> None:
        self._load = load
        self._opened: Backend | None = None
        self._opening = 0.0

    def clock(self) -> float:
        """Seconds from any start, without those that opening the backend took."""
        return perf_counter() - self._opening

    @property
    def name(self) -> str:
        """The opened backend's name."""
        return self._backend.name

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        return self._backend.answer(prompts, sampling)

    def check(self, sampling: Sampling) -> None:
        self._backend.check(sampling)

    def close(self) -> None:
        """Close the backend if it was opened."""
        if self._opened is not None:
            self._opened.close()

    def known_as(self) -> tuple[str, ...]:
        return self._backend.known_as()

    def tally(self) -> Tally | None:
        """What was sent so far; opens nothing."""
        return None if self._opened is None else self._opened.tally()

    @property
    def limits(self) -> Limits:
        return self._backend.limits

    @property
    def insight(self) -> Insight:
        return self._backend.insight

    @property
    def _backend(self) -> Backend:
        if self._opened is None:
            begin = perf_counter()
            self._opened = self._load()
            self._opening = perf_counter() - begin
        return self._opened


class AnswerStream(Iterator[tuple[int, Answer]]):
    """Answers of a backend that has them before they are taken."""

    @abstractmethod
    def listen(self, on_answer: OnAnswer, *, is_settled: bool = False) -> None:
        """Have each answer told once, as soon as it is there, in a thread of the backend.

        To be called before the first answer is taken. is_settled: whether other prompts with this
        sampling have answers, from a ledger. Then these may all fail: it is each one's own fault.
        """

    @abstractmethod
    def close(self) -> None:
        """Cancel what is open."""


def tell(answers: Answers, on_answer: OnAnswer, *, is_settled: bool = False) -> Answers:
    """Tell `on_answer` of each answer, and give the same answers. See AnswerStream.listen.

    Those of a backend without a thread are told of as they are taken.
    """
    if isinstance(answers, AnswerStream):
        answers.listen(on_answer, is_settled=is_settled)
        return answers
    return _telling(answers, on_answer)


def _telling(answers: Answers, on_answer: OnAnswer) -> Answers:
    for index, answer in answers:
        on_answer(index, answer)
        yield index, answer


@runtime_checkable
class Answering(Protocol):
    """The member by which an object that answers prompts is recognised; see Backend."""

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """(index into prompts, answer) as they come; see Backend."""


class Adopted(Backend):
    """An object of a user that is no Backend and answers like one: with `name` and `answer`."""

    def __init__(self, given: Any) -> None:
        self._given = given

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self._given.name)

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
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
