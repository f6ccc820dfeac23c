"""Several answers to each of several prompts, as the choices of a completion or as its events."""

from __future__ import annotations

import json
import secrets
import time
from abc import abstractmethod
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from relquery.backends.local.asking import Piece
from relquery.prompt import Answer, Finish, Prompt, Sampling, TokenLogprob
from relquery.serve.errors import unanswered
from relquery.serve.openai.fields import SamplingFields
from relquery.serve.server import NamedModel, PromptGroup
from relquery.serve.streaming import ResponseForm, event

LEAST = -9999.0
"""In place of the logarithm of 0, which JSON cannot tell."""
Spell = Callable[[int], bytes]
Told = Sequence[TokenLogprob]


def choices_of(
    prompts: Sequence[Prompt], samplings: Sequence[Sampling], n: int
) -> tuple[list[PromptGroup], list[int]]:
    """(groups, places), see RequestScope.answer. samplings: one for all n choices, or one for
    each."""
    if len(samplings) == 1:
        every = [each for each in prompts for _ in range(n)]
        return [PromptGroup(every, samplings[0])], [*range(len(every))]
    groups = [PromptGroup(list(prompts), sampling) for sampling in samplings]
    return groups, [index * n + choice for choice in range(n) for index in range(len(prompts))]


class CompletionForm(ResponseForm):
    """One request's completions in OpenAI's form. prompts, samplings: see choices_of."""

    kind, name, chunk = "cmpl", "text_completion", "text_completion"
    """How its ids begin, and what it and its events are called."""
    about: ClassVar[dict[str, Any]] = {}
    """What answers and events say beside that."""

    def __init__(
        self,
        body: SamplingFields,
        model: NamedModel,
        prompts: Sequence[Prompt],
        samplings: Sequence[Sampling],
    ) -> None:
        self._sampled, self._engine = body, model.engine
        self.groups, self.places = choices_of(prompts, samplings, body.choices)
        self._spell: Spell = lambda _: b""
        self._answers: dict[int, Answer] = {}
        self._with_usage = bool(body.stream_options and body.stream_options.include_usage)
        about = {"created": int(time.time()), "model": body.model, "system_fingerprint": None}
        about |= self.about
        name = f"{self.kind}-{secrets.token_hex(12)}"
        self._head: dict[str, Any] = {"id": name, "object": self.chunk, **about}
        opening = json.dumps(self._head, separators=(",", ":"))[:-1]
        ending = ',"usage":null}' if self._with_usage else "}"
        self._frame = f'data: {opening},"choices":[', f"]{ending}\n\n"

    @abstractmethod
    def choice(self, at: int, answer: Answer) -> dict[str, Any]:
        """What a choice has beside its index and its end."""

    def finish(self, at: int, answer: Answer) -> str:
        """Why a choice has ended."""
        return finish_of(answer)

    def whole(self, answers: list[Answer]) -> dict[str, Any]:
        choices = [
            {
                "index": index,
                **self.choice(index, answer),
                "finish_reason": self.finish(index, answer),
            }
            for index, answer in enumerate(answers)
        ]
        told = {"choices": choices, "usage": usage_of(answers, self._sampled.choices)}
        return self._head | {"object": self.name} | told

    def event(self, at: int, found: dict[str, Any], ended: Answer | None = None) -> bytes:
        """The event for a part of a choice. ended: in the last one, the answer."""
        reason = None
        if ended is not None:
            reason, self._answers[at] = self.finish(at, ended), ended
        choice = {"index": at, **found, "finish_reason": reason}
        opening, ending = self._frame
        return f"{opening}{json.dumps(choice, separators=(',', ':'))}{ending}".encode()

    def end(self) -> bytes:
        usage, done = b"", b"data: [DONE]\n\n"
        if self._with_usage:
            answers = [
                answer for _, answer in sorted(self._answers.items(), key=lambda each: each[0])
            ]
            told = {"choices": [], "usage": usage_of(answers, self._sampled.choices)}
            usage = event(self._head | told)
        return usage + done

    async def learn(self, some: Sequence[Piece | Answer]) -> None:
        """Ask the engine for all that is needed to show what has come."""
        told: list[TokenLogprob] = []
        for each in some:
            about = each.begun if isinstance(each, Piece) else each
            told += (about and about.prompt_logprobs) or ()
            told += each.logprobs or ()
        if told:
            tokens = (
                token for each in told for token in (each.token, *(top for top, _ in each.top))
            )
            self._spell = await self._engine.spell(tokens)


def usage_of(answers: Iterable[Answer], choices: int = 1) -> dict[str, Any]:
    """Tokens of all answers; a prompt that has several choices is counted once.

    answers: those of one prompt follow each other.
    """
    every = list(answers)
    prompts = sum(each.prompt_tokens for each in every[::choices])
    outputs = sum(each.output_tokens for each in every)
    cached = sum(each.cached_tokens for each in every[::choices])
    return {
        "prompt_tokens": prompts,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens": outputs,
        "total_tokens": prompts + outputs,
    }


def finish_of(answer: Answer) -> str:
    """Why an answer ended. Raises HttpError for one that could not be served."""
    if answer.finish in (Finish.ERROR, Finish.CANCELLED):
        raise unanswered(answer)
    return "length" if answer.finish is Finish.LENGTH else "stop"


def chat_logprobs(told: Told, spell: Spell) -> dict[str, Any]:
    """`logprobs` of a chat completion's choice. All tokens that were drawn are told of, also those
    of a stop string; those that are no whole characters have a replacement character."""

    def entry(token: int, log: float) -> dict[str, Any]:
        spelt = spell(token)
        shown = spelt.decode(errors="replace")
        return {"token": shown, "logprob": max(log, LEAST), "bytes": list(spelt)}

    content = [
        entry(each.token, each.logprob) | {"top_logprobs": [entry(*top) for top in each.top]}
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

    by_token: list[dict[str, Any] | None] = [None]
    for each in told[1:]:
        entries = {str(each.token): entry(each.token, each.logprob, each.rank)}
        for rank, (token, log) in enumerate(each.top, 1):
            entries.setdefault(str(token), entry(token, log, rank))
        by_token.append(entries)
    return by_token
