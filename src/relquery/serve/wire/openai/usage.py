"""Counted tokens, and why answers ended, in OpenAI's words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from relquery.prompt import Answer, Finish
from relquery.serve.errors import HttpError, unanswered


def usage_of(answers: Iterable[Answer], choices: int = 1) -> dict[str, Any]:
    """Tokens of all answers; a prompt that has several choices is counted once.

    answers: those of one prompt follow each other.
    """
    found = list(answers)
    prompts = sum(each.prompt_tokens for each in found[::choices])
    cached = sum(each.cached_tokens for each in found[::choices])
    drawn = sum(each.output_tokens for each in found)
    return {
        "prompt_tokens": prompts,
        "completion_tokens": drawn,
        "total_tokens": prompts + drawn,
        "prompt_tokens_details": {"cached_tokens": cached},
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
