"""From a tree to the prompt that is sent."""

from __future__ import annotations

from relquery.errors import UnsupportedQueryError
from relquery.ir.nodes import Bag, Generate, Node, Seq, Text
from relquery.prompt import Prompt, Role, Span

Spans = dict[tuple[str, str, Role], Span]


def lower(node: Node, spans: Spans | None = None) -> Prompt:
    """The prompt of one generation: PREFIX spans, one per piece of text that is not empty.

    A Bag's children stand in the order given, and each but the last ends with the separator.
    spans: shared by the calls for one table, so that equal pieces become one object and are built
        once per distinct cell, not once per row; filled here.

    Raises UnsupportedQueryError for a generation inside the input of another.
    """
    if isinstance(node, Generate):
        node = node.input
    lowered: list[Span] = []
    _append(lowered, node, "", {} if spans is None else spans)
    return tuple(lowered)


def _append(lowered: list[Span], node: Node, ending: str, spans: Spans) -> None:
    """Append the spans of `node`; `ending` closes its last one."""
    match node:
        case Text(content, role):
            key = (content, ending, role)
            span = spans.get(key)
            if span is None:
                span = spans[key] = Span(content + ending, role)
            if span.content:
                lowered.append(span)
        case Seq(children):
            _append_all(lowered, children, "", ending, spans)
        case Bag(children, separator):
            _append_all(lowered, children, separator, ending, spans)
        case Generate():
            raise UnsupportedQueryError(
                "A prompt holds the answer of another generation, which is not known yet. "
                "Run the inner one first and pass its answer as Text."
            )


def _append_all(
    lowered: list[Span], children: tuple[Node, ...], separator: str, ending: str, spans: Spans
) -> None:
    if not children:
        if ending:
            _append(lowered, Text(ending), "", spans)
        return
    for child in children[:-1]:
        _append(lowered, child, separator, spans)
    _append(lowered, children[-1], ending, spans)
