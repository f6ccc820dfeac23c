"""Plus distributes over generations (paper 002, section 5.1, Fig. 7d)."""

from __future__ import annotations

from relquery.ir.nodes import Bag, Chat, Generate, Node


def distribute_plus(node: Node) -> Node | None:
    """plus(generate(x), ...) => plus(generate(plus(x)), ...)

    Input and output tokens are then in one span, so the answer is found in the cache where the
    engine left it: after its input (the dual output paradox, Fig. 8). To the model x means the
    same, because nothing comes before it. An input that is a plus already has a span. An input
    that is itself a generation stays the text of an answer, and gets its span once it is text.
    """
    if not isinstance(node, Bag) or not node.independent:
        return None
    if not any(_lacks_span(child) for child in node.children):
        return None
    return Bag(tuple(map(_with_span, node.children)), independent=True)


def _lacks_span(node: Node) -> bool:
    return isinstance(node, Generate) and not (
        isinstance(node.input, Generate | Chat)
        or (isinstance(node.input, Bag) and node.input.independent)
    )


def _with_span(node: Node) -> Node:
    if isinstance(node, Generate) and _lacks_span(node):
        return Generate(Bag((node.input,), independent=True), node.sampling)
    return node
