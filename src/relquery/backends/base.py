"""What every backend offers: the embedded engine, a server, a provider's API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, cast

from relquery.prompt import Answer, Prompt, Sampling

Heard = Callable[[int, Answer], None]


class Backend(Protocol):
    """Answers prompts. Implementations ship in this package; any object of this form will do."""

    @property
    def name(self) -> str:
        """The model's name as a person would write it, for reports."""

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        """Serve all prompts, in the order given where order matters for reuse.

        Yields (index into prompts, answer) as answers finish, each index exactly once. A prompt
        that cannot be served yields an answer with an error. Closing the iterator cancels what
        is still open. Requests of one call form one relQuery. Without a seed, prompts that are
        equal are drawn one by one.
        """

    def close(self) -> None:
        """Free what the backend holds. The backend cannot be used afterwards."""


class Arrivals(Protocol):
    """What an iterator of answers may offer: to tell of each before it is taken.

    heard: called once with each (index, answer), maybe in a thread of the backend; may be set until
    the first is taken.
    """

    heard: Heard


class Identity(Protocol):
    """What a backend may say of its model, where a name does not tell all models apart."""

    def known_as(self) -> tuple[str, ...]:
        """Names by which the ledger knows the model: the one to store under, then older ones."""


class Foresight(Protocol):
    """What a backend may tell before it is asked: to be had without computing an answer.

    Each method is optional; the functions below say None where it is missing, and a method may say
    None as well.
    """

    def one_pass(self, sampling: Sampling) -> bool | None:
        """Whether an answer takes no forward pass beside those of its prompt.

        One that is only compared with some texts may take more where it begins like one of them,
        but in other tokens than the tokenizer gives for that text.
        """

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int] | None:
        """Tokens of each prompt as it would be sent; 0 for one that would be refused."""

    def predict_all(self, prompt_tokens: Sequence[int], sampling: Sampling) -> float | None:
        """Seconds until the last answer, at most: nothing cached, answers as long as allowed."""


def one_pass(backend: Backend, sampling: Sampling) -> bool | None:
    """See Foresight."""
    tell = getattr(backend, "one_pass", None)
    return None if tell is None else cast(Foresight, backend).one_pass(sampling)


def prompt_tokens(
    backend: Backend, prompts: Sequence[Prompt], sampling: Sampling
) -> list[int] | None:
    """See Foresight."""
    tell = getattr(backend, "prompt_tokens", None)
    return None if tell is None else cast(Foresight, backend).prompt_tokens(prompts, sampling)


def predict_all(backend: Backend, prompt_tokens: Sequence[int], sampling: Sampling) -> float | None:
    """See Foresight."""
    tell = getattr(backend, "predict_all", None)
    return None if tell is None else cast(Foresight, backend).predict_all(prompt_tokens, sampling)


def known_as(backend: Backend) -> tuple[str, ...]:
    """See Identity; its name where it says no more."""
    tell = getattr(backend, "known_as", None)
    return (backend.name,) if tell is None else cast(Identity, backend).known_as()


def on_arrival(answers: Iterator[tuple[int, Answer]], heard: Heard) -> bool:
    """Have `heard` called as answers arrive; False where the iterator does not offer that."""
    if not hasattr(answers, "heard"):
        return False
    cast(Arrivals, answers).heard = heard
    return True
