"""Prompts as token ids, where one that cannot be rendered is refused alone; and as states alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from relquery.engine.requests.pieces import Chain
from relquery.engine.step.answer import failed
from relquery.errors import SHORTEN, RequestError
from relquery.prompt import Answer, Blank, Exchange, Finish, Nest, Prompt, Reuse, Sampling, Span
from relquery.tools import ToolCall, ToolResult, Tools

if TYPE_CHECKING:
    from relquery.model.text.render import Renderer


def render_each(
    renderer: Renderer, vocabulary: int, context: int, prompts: Sequence[Prompt]
) -> list[Chain | RequestError]:
    """Each prompt's tokens, or why it has none.

    vocabulary: token ids that spans bring along are below it. context: positions of the model; what
    is far beyond is refused before it is cut into tokens, which takes a hundred times its memory.
    """
    try:
        for prompt in prompts:
            _check_length(prompt, renderer, context)
            _check([span for span in prompt if not renderer.knows(span)], vocabulary)
        return list(renderer.render(prompts))
    except Exception as error:
        if len(prompts) == 1:
            return [error if isinstance(error, RequestError) else RequestError(failed(error))]
    # Those before and after the one that is wrong are still tokenised together, which is faster.
    half = len(prompts) // 2
    return [
        *render_each(renderer, vocabulary, context, prompts[:half]),
        *render_each(renderer, vocabulary, context, prompts[half:]),
    ]


def _check_length(prompt: Sequence[Span], renderer: Renderer, context: int) -> None:
    """Raise RequestError for a prompt that cannot have less tokens than the context."""
    most = context * renderer.longest
    size = sum(map(_characters, prompt))
    if size > most:
        raise RequestError(
            f"The prompt has {size:,} characters, far more than the model's context of {context:,} "
            f"tokens. {SHORTEN}"
        )


def _characters(span: Span) -> int:
    match span.content:
        case str(text):
            return len(text)
        case Exchange(prompt=inner) | Nest(spans=inner):
            return sum(map(_characters, inner))
        case ToolCall(arguments=text) | ToolResult(text=text):
            return len(text)
        case Tools(functions):
            return sum(len(each.parameters) for each in functions)
    return 0


def _check(prompt: Sequence[Span], vocabulary: int) -> None:
    """Raise RequestError for content that would break the tokenizer or the step of all."""
    for span in prompt:
        at = span.position
        if at is not None and not (type(at) is int and at >= 0):
            raise RequestError(f"A span has the position {at!r}; it must be an int from 0 on.")
        match span.content:
            case str(text) | ToolResult(text=text):
                try:
                    text.encode()
                except UnicodeEncodeError as error:
                    raise RequestError(f"The prompt is not valid Unicode text: {error}.") from error
            case Exchange(prompt=inner, output=ids):
                _check(inner, vocabulary)
                _check_ids(ids, vocabulary)
            case Nest(spans=inner):
                _check(inner, vocabulary)
            case Blank(tokens=int(count)):
                if count < 0:
                    raise RequestError(f"A Blank has {count} tokens; it must have at least 0.")
            case Blank(tokens=tuple(ids)) | tuple(ids):
                _check_ids(ids, vocabulary)


def _check_ids(ids: tuple[int, ...], vocabulary: int) -> None:
    for token in ids:
        if not (isinstance(token, (int, np.integer)) and 0 <= token < vocabulary):
            raise RequestError(
                f"The prompt contains the token id {token!r}; this model's ids range from 0 to "
                f"{vocabulary - 1}."
            )


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
