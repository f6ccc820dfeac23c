"""Asking prompts for nothing but their states, which later prompts find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relquery.errors import RequestError
from relquery.prompt import Answer, Finish, Prompt, Reuse, Sampling, Span


def to_prepare(prompts: Sequence[Prompt]) -> tuple[list[Prompt], Sampling]:
    """What to ask so that the states of prompts are computed."""
    return [_ended(prompt) for prompt in prompts], Sampling(max_tokens=1)


def check_prepared(answers: Iterable[Answer]) -> None:
    """Raises RequestError if one of the answers says that its prompt cannot be served."""
    for answer in answers:
        if answer.finish is Finish.ERROR:
            raise RequestError(answer.error or "A prompt cannot be prepared.")


def _ended(prompt: Prompt) -> Prompt:
    """The prompt with a line break at its end if it ends with an independent span."""
    if not prompt or prompt[-1].reuse is Reuse.PREFIX:
        return prompt
    return (*prompt, Span("\n", prompt[-1].role))
