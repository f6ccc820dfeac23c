"""System texts and messages as a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from relquery.prompt import Prompt, Role, Span
from relquery.serve.body import Inner
from relquery.serve.errors import HttpError
from relquery.serve.wire.anthropic.blocks import (
    LEVELS,
    SECONDS,
    CacheControl,
    Content,
    System,
    TextBlock,
    blocks_of,
    with_automatic,
)


class InputMessage(Inner):
    """A message. Messages of one role in a row are one turn."""

    role: Literal["user", "assistant", "system"]
    content: Content


def prompt_of(
    system: System | None, messages: Sequence[InputMessage], automatic: CacheControl | None
) -> tuple[Prompt, list[str]]:
    """The prompt, and the ttl of each of its breakpoints.

    A last message of the assistant is open: the answer continues it. Raises HttpError.
    """
    turns = [(Role.SYSTEM, blocks_of(system))] if system else []
    for at, message in enumerate(messages):
        blocks = blocks_of(message.content)
        is_prefill = message.role == "assistant" and at == len(messages) - 1
        if not blocks and not is_prefill:
            raise HttpError(400, f"messages.{at} has no text.", "invalid_request", "messages")
        if is_prefill and blocks and blocks[-1].text[-1].isspace():
            raise HttpError(
                400,
                "The last message of the assistant ends with white space, from which no answer can "
                "continue. Remove it.",
                "invalid_request",
                "messages",
            )
        turns.append((Role(message.role), blocks))
    return _spans(turns, automatic, is_open=bool(turns[-1][1]) and turns[-1][0] is Role.ASSISTANT)


def _spans(
    turns: Sequence[tuple[Role, list[TextBlock]]], automatic: CacheControl | None, is_open: bool
) -> tuple[Prompt, list[str]]:
    breakpoints = iter(with_automatic([each for _, blocks in turns for each in blocks], automatic))
    spans: list[Span] = []
    ttls: list[str] = []
    for role, blocks in turns:
        if blocks and spans and spans[-1].role is role:  # one turn: a line break between them
            ends_line = str(spans[-1].content).endswith("\n")
            spans += [] if ends_line else [Span("\n", role)]
        for block in blocks:
            kept = next(breakpoints)
            if kept is None:
                spans.append(Span(block.text, role))
                continue
            ttls.append(kept.ttl)
            spans.append(Span(block.text, role, keep=LEVELS[kept.ttl], keep_for=SECONDS[kept.ttl]))
    if is_open:
        spans[-1] = replace(spans[-1], open=True)
    return tuple(spans), ttls
