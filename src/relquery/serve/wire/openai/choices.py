"""Several answers to each of several prompts, and the forms that routes and batches share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from relquery.prompt import Answer, Prompt, Sampling
from relquery.serve.answering import EventStream, whole
from relquery.serve.asked import Caller
from relquery.serve.body import Declared
from relquery.serve.errors import Ascii
from relquery.serve.flow import Flow
from relquery.serve.server import Asked, Server


class Form(Protocol):
    """One request's answers in the form of its API."""

    async def whole(self, answers: list[Answer]) -> dict[str, Any]:
        """The body of an answer that is sent at once. answers: in the order of the choices.

        Raises HttpError for an answer that could not be served."""

    def stream(self, flow: Flow) -> EventStream:
        """The answers as events."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a body asks for, read and checked.

    groups: what the engine is asked. places: the choice that each answer is, in the order of the
    groups' prompts. form: of what comes back.
    """

    groups: list[Asked]
    places: list[int]
    form: Form

    def in_order(self, answers: Sequence[Answer]) -> list[Answer]:
        """Answers to the groups' prompts, in the order of the choices."""
        found = dict(zip(self.places, answers, strict=True))
        return [found[place] for place in range(len(found))]


class Asking(Protocol):
    """What all bodies of OpenAI's API that ask for answers have."""

    stream: bool | None
    relquery: Declared | None


async def answered(question: Question, body: Asking, request: Request) -> Response:
    """Ask a question for whoever sent it: its answers at once, or as events.

    Raises HttpError, and what breaks the relQuery."""
    flow = Caller(request).start(
        question.groups, streamed=bool(body.stream), declared=body.relquery
    )
    if body.stream:
        return question.form.stream(flow)
    answers = await whole(request, flow)
    return Ascii(await question.form.whole(question.in_order(answers)))


class Read(Protocol):
    """Reads a body of one API."""

    def __call__(self, body: Any, server: Server) -> Question:
        """Raises HttpError for what cannot be asked."""


def choices_of(
    prompts: Sequence[Prompt], samplings: Sequence[Sampling], n: int, adapter: str = ""
) -> tuple[list[Asked], list[int]]:
    """(groups, places), see Question. samplings: one for all n choices, or one for each."""
    if len(samplings) == 1:
        every = [each for each in prompts for _ in range(n)]
        return [Asked(every, samplings[0], adapter)], [*range(len(every))]
    groups = [Asked(list(prompts), sampling, adapter) for sampling in samplings]
    return groups, [at * n + choice for choice in range(n) for at in range(len(prompts))]
