"""Several answers to each of several prompts, as the choices of a completion or as its events."""

from __future__ import annotations

import json
import secrets
import time
from abc import ABC, abstractmethod
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from relquery.backends.local.asking import Piece
from relquery.prompt import Answer, Finish, Prompt, Sampling, TokenLogprob
from relquery.serve.errors import HttpError, unanswered
from relquery.serve.openai.fields import Sampled
from relquery.serve.server import NamedModel, PromptGroup
from relquery.serve.streaming import AnswerStream, event, failed_event

LEAST = -9999.0
"""In place of the logarithm of 0, which JSON cannot tell."""
Spell = Callable[[int], bytes]
Told = Sequence[TokenLogprob]


def choices_of(
    prompts: Sequence[Prompt], samplings: Sequence[Sampling], n: int
) -> tuple[list[PromptGroup], list[int]]:
    """(groups, places), see Question. samplings: one for all n choices, or one for each."""
    if len(samplings) == 1:
        every = [each for each in prompts for _ in range(n)]
        return [PromptGroup(every, samplings[0])], [*range(len(every))]
    groups = [PromptGroup(list(prompts), sampling) for sampling in samplings]
    return groups, [at * n + choice for choice in range(n) for at in range(len(prompts))]


class CompletionForm(ABC):
    """One request's completions in OpenAI's form. See Form. places: see Question."""

    kind, name, chunk = "cmpl", "text_completion", "text_completion"
    """How its ids begin, and what it and its events are called."""

    def __init__(self, body: Sampled, model: NamedModel, places: Sequence[int]) -> None:
        self._body, self._engine, self._places = body, model.engine, places
        self._spell: Spell = lambda _: b""
        self._id, self._created = f"{self.kind}-{secrets.token_hex(12)}", int(time.time())

    @abstractmethod
    def choice(self, at: int, answer: Answer) -> dict[str, Any]:
        """What a choice has beside its index and its end."""

    def first(self) -> dict[str, Any] | None:
        """What the first event of each choice has, if there is one before all others."""
        return None

    @abstractmethod
    def piece(self, at: int, piece: Piece) -> dict[str, Any] | None:
        """What the event for a part of a choice has; None if there is none."""

    @abstractmethod
    def last(self, at: int, answer: Answer) -> dict[str, Any]:
        """What the last event of a choice has."""

    def finish(self, at: int, answer: Answer) -> str:
        """Why a choice has ended. Raises HttpError for one that could not be served."""
        return finish_of(answer)

    def taken(self, answer: Answer) -> Answer:
        """What of an answer was asked for."""
        return answer

    def head(self, kind: str) -> dict[str, Any]:
        """The fields of an answer, and of each event."""
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._body.model,
            "system_fingerprint": None,
        }

    async def whole(self, answers: list[Answer]) -> dict[str, Any]:
        answers = list(map(self.taken, answers))
        await self.learn(answers)
        choices = [
            {"index": at, **self.choice(at, answer), "finish_reason": self.finish(at, answer)}
            for at, answer in enumerate(answers)
        ]
        usage = usage_of(answers, self._body.choices)
        return self.head(self.name) | {"choices": choices, "usage": usage}

    async def events(self, stream: AnswerStream) -> AsyncIterator[bytes]:
        options = self._body.stream_options
        with_usage = bool(options and options.include_usage)
        opening = json.dumps(self.head(self.chunk), separators=(",", ":"))[:-1]
        ending = ',"usage":null}' if with_usage else "}"

        def written(at: int, found: dict[str, Any], finish: str | None) -> str:
            choice = json.dumps(
                {"index": at, **found, "finish_reason": finish}, separators=(",", ":")
            )
            return f'data: {opening},"choices":[{choice}]{ending}\n\n'

        answers: dict[int, Answer] = {}
        first = self.first()
        begun = (
            ""
            if first is None
            else "".join(written(at, first, None) for at in range(self._body.choices))
        )
        while parts := await stream.some():
            await self.learn([each for part in parts if (each := part.piece or part.answer)])
            chunk = [begun]
            begun = ""
            for part in parts:
                place = self._places[part.at]
                if part.piece is not None:
                    found = self.piece(place, part.piece)
                    if found is not None:
                        chunk.append(written(place, found, None))
                elif part.answer is not None:
                    answer = answers[place] = self.taken(part.answer)
                    reason = self.finish(place, answer)
                    chunk.append(written(place, self.last(place, answer), reason))
            yield "".join(chunk).encode()
        if with_usage:
            usage = usage_of([answers[place] for place in sorted(answers)], self._body.choices)
            yield event(self.head(self.chunk) | {"choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    def failed(self, error: HttpError) -> bytes:
        return failed_event(error)

    async def learn(self, some: Sequence[Piece | Answer]) -> None:
        """Ask the engine for all that is needed to show what has come."""
        told: list[TokenLogprob] = []
        for each in some:
            about = each.begun if isinstance(each, Piece) else each
            told += (about and about.prompt_logprobs) or ()
            told += each.logprobs or ()
        if told:
            self._spell = await self._engine.spell_all(told)


def usage_of(answers: Iterable[Answer], choices: int = 1) -> dict[str, Any]:
    """Tokens of all answers; a prompt that has several choices is counted once.

    answers: those of one prompt follow each other.
    """
    return _usage(answers, choices, "prompt", "completion")


def response_usage_of(answer: Answer) -> dict[str, Any]:
    """The same for a response, whose fields have other names."""
    found = _usage([answer], 1, "input", "output")
    found["input_tokens_details"]["cache_write_tokens"] = 0
    return found | {"output_tokens_details": {"reasoning_tokens": 0}}


def _usage(answers: Iterable[Answer], choices: int, read: str, drawn: str) -> dict[str, Any]:
    found = list(answers)
    prompts = sum(each.prompt_tokens for each in found[::choices])
    outputs = sum(each.output_tokens for each in found)
    cached = sum(each.cached_tokens for each in found[::choices])
    return {
        f"{read}_tokens": prompts,
        f"{read}_tokens_details": {"cached_tokens": cached},
        f"{drawn}_tokens": outputs,
        "total_tokens": prompts + outputs,
    }


def finish_of(answer: Answer) -> str:
    """Why an answer ended. Raises HttpError for one that could not be served."""
    match answer.finish:
        case Finish.LENGTH:
            return "length"
        case Finish.STOP | Finish.DECIDED:
            return "stop"
        case Finish.CANCELLED:
            raise HttpError(504, answer.error or "The request was cancelled.", "cancelled")
    raise unanswered(answer.error)


def chat_logprobs(told: Told, spell: Spell) -> dict[str, Any]:
    """`logprobs` of a chat completion's choice. All tokens that were drawn are told of, also those
    of a stop string; those that are no whole characters have a replacement character."""

    def entry(token: int, log: float) -> dict[str, Any]:
        spelt = spell(token)
        shown = spelt.decode(errors="replace")
        return {"token": shown, "logprob": max(log, LEAST), "bytes": list(spelt)}

    content = [
        entry(each.token, each.logprob) | {"top_logprobs": [entry(*one) for one in each.top]}
        for each in told
    ]
    return {"content": content, "refusal": None}


class PlainLogprobs:
    """`logprobs` of one choice of a plain completion, part by part."""

    def __init__(self) -> None:
        self._characters = getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0

    def shown(self, told: Told, spell: Spell, *, opens: bool = False) -> dict[str, Any]:
        """Of the next tokens. Their offsets are in characters of the choice's text. opens: whether
        the first has nothing before it, and thus no log-probability."""
        offsets = []
        for each in told:
            offsets.append(self._offset)
            self._offset += len(self._characters.decode(spell(each.token)))

        def text(token: int) -> str:
            return spell(token).decode(errors="replace")

        logs: list[float | None] = [max(each.logprob, LEAST) for each in told]
        tops: list[dict[str, float] | None] = [
            {text(token): max(log, LEAST) for token, log in reversed(each.top)} for each in told
        ]
        if opens:
            logs[0] = tops[0] = None
        return {
            "tokens": [text(each.token) for each in told],
            "token_logprobs": logs,
            "top_logprobs": tops,
            "text_offset": offsets,
        }


def prompt_logprobs(told: Told, spell: Spell) -> list[dict[str, Any] | None]:
    """`prompt_logprobs` of a choice, vLLM's field: by token id, the prompt's own and the likeliest
    at its place; None for the first."""

    def entry(token: int, log: float, rank: int) -> dict[str, Any]:
        shown = spell(token).decode(errors="replace")
        return {"logprob": max(log, LEAST), "rank": rank, "decoded_token": shown}

    found: list[dict[str, Any] | None] = [None]
    for each in told[1:]:
        at = {str(each.token): entry(each.token, each.logprob, each.rank)}
        for rank, (token, log) in enumerate(each.top, 1):
            at.setdefault(str(token), entry(token, log, rank))
        found.append(at)
    return found
