"""Counted tokens, and why an answer ended, in Anthropic's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relquery.backends.local.asking import Begun
from relquery.prompt import Answer, Finish
from relquery.serve.errors import HttpError, unanswered


def usage_of(answer: Answer | Begun, ttls: Sequence[str], output_tokens: int) -> dict[str, Any]:
    """Tokens of a prompt and its answer. ttls: of the prompt's breakpoints.

    Tokens up to the last breakpoint count as read from the cache or as created in it, and those
    after it as plain input. A prompt without breakpoints is plain input; the engine may still have
    reused states for it.
    """
    kept = list(zip(answer.kept, ttls, strict=False))
    end = kept[-1][0] if kept else 0
    read = min(answer.cached_tokens, end)
    hours = max((tokens for tokens, ttl in kept if ttl == "1h"), default=0)
    for_an_hour = max(0, hours - read)
    return {
        "input_tokens": answer.prompt_tokens - end,
        "cache_creation_input_tokens": end - read,
        "cache_read_input_tokens": read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": end - read - for_an_hour,
            "ephemeral_1h_input_tokens": for_an_hour,
        },
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def finish_of(answer: Answer, max_tokens: int) -> tuple[str, str | None]:
    """The stop_reason and the stop_sequence of an answer. max_tokens: what it was allowed.

    Raises HttpError for one that could not be served.
    """
    match answer.finish:
        case Finish.LENGTH:
            is_cut = answer.output_tokens < max_tokens
            return "model_context_window_exceeded" if is_cut else "max_tokens", None
        case Finish.STOP | Finish.DECIDED:
            is_cut = answer.stopped_by is not None
            return "stop_sequence" if is_cut else "end_turn", answer.stopped_by
        case Finish.CANCELLED:
            raise HttpError(504, answer.error or "The request was cancelled.", "cancelled")
    raise unanswered(answer.error)
