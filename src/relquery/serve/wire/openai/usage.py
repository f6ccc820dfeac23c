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
    return _usage(answers, choices, "prompt", "completion")


def response_usage_of(answer: Answer) -> dict[str, Any]:
    """The same for a response, whose fields have other names."""
    found = _usage([answer], 1, "input", "output")
    return found | {"output_tokens_details": {"reasoning_tokens": 0}}


def _usage(answers: Iterable[Answer], choices: int, read: str, drawn: str) -> dict[str, Any]:
    found = list(answers)
    prompts = sum(each.prompt_tokens for each in found[::choices])
    outputs = sum(each.output_tokens for each in found)
    return {
        f"{read}_tokens": prompts,
        f"{read}_tokens_details": {
            "cached_tokens": sum(each.cached_tokens for each in found[::choices])
        },
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
