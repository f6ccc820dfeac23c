"""Prompts for backends without independent spans: children of plus become ordinary text."""

from __future__ import annotations

from collections.abc import Iterator

from relquery.prompt import Nest, Prompt, Reuse, Span


def as_plain(prompt: Prompt) -> Prompt:
    """The prompt with each independent text as a line of its own, nested ones included."""
    plain: list[Span] = []
    for span in prompt:
        if span.reuse is Reuse.PREFIX:
            plain.append(span)
            continue
        for part in _leaves(span):
            plain.append(_as_line(part, span, plain))
    return tuple(plain)


def _leaves(span: Span) -> Iterator[Span]:
    """The span, or the parts of a nest in order."""
    if isinstance(span.content, Nest):
        for part in span.content.spans:
            yield from _leaves(part)
    else:
        yield span


def _as_line(part: Span, whole: Span, before: list[Span]) -> Span:
    """A part of an independent span, as plain text after `before`."""
    content = part.content
    if not isinstance(content, str):
        return part
    if not content.endswith("\n"):
        content += "\n"
    last = before[-1] if before else None
    if last is not None and last.role is whole.role and _runs_on(last):
        content = f"\n{content}"
    return Span(content, whole.role)


def _runs_on(span: Span) -> bool:
    """Whether text right after the span would continue its last word."""
    return isinstance(span.content, str) and not span.content[-1:].isspace()
