"""How long a request and its answer may be."""

from __future__ import annotations

from relquery.config import EngineConfig
from relquery.engine.request.request import Request
from relquery.engine.scheduling.reuse import needs_no_blocks
from relquery.errors import PromptTooLongError, RequestError


def room_for(request: Request, limits: EngineConfig, capacity: int) -> int:
    """Tokens that the answer to a request may have, whatever else is served.

    capacity: tokens that the cache holds. Raises PromptTooLongError or RequestError if the request
    can never be served.
    """
    prompt, size = request.prompt_tokens, limits.block_size
    if prompt == 0:
        raise RequestError("The prompt has no tokens; give it at least one character.")
    if len(request.pieces[-1].tokens) == 0:
        raise RequestError(
            "The prompt ends with an independent span, so nothing attends to all of it. "
            "Add ordinary text after the span."
        )
    # Each piece but the last may leave the rest of a block empty.
    lost = sum(-len(piece.tokens) % size for piece in request.pieces[:-1])
    room = capacity - lost - prompt
    if room <= 0 and not _ends_at_once(request, limits):
        raise _too_long(request, limits, max(capacity - lost, 1))
    return max(room, 1)


def _ends_at_once(request: Request, limits: EngineConfig) -> bool:
    """Whether one step can take the whole request, whatever is cached."""
    longest = limits.max_input or 0
    return needs_no_blocks(request, limits) and request.prompt_tokens <= longest


def _too_long(request: Request, limits: EngineConfig, room: int) -> PromptTooLongError:
    tokens, longest = request.prompt_tokens, limits.max_input or 0
    if request.prefill_only and longest + 1 > room:
        return PromptTooLongError(tokens, longest + 1, "a step", "Raise max_input or memory.")
    return PromptTooLongError(tokens, room, "the KV cache", "Raise cache_tokens.")
