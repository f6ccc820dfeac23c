"""Turns a tree into a JSON value, from the leaves up, without recursion."""

from __future__ import annotations

from dataclasses import replace

from relquery.ir.forms.spnl.ends import MAX_NODES
from relquery.ir.forms.spnl.fields import Spot, expect_text
from relquery.ir.nodes import Bag, Generate, Node, Seq, Text
from relquery.ir.paths import check_node
from relquery.ir.verify import check_size
from relquery.prompt import Sampling

Wire = dict[str, object]


def write(node: Node, model: str) -> Wire:
    """See `relquery.ir.forms.spnl.wire.to_wire`."""
    expect_text(model, Spot() / "model")
    check_node(node)
    check_size(node, MAX_NODES)  # JSON repeats a shared node in each place
    order: list[tuple[Node, Spot]] = []
    todo = [(node, Spot())]
    while todo:
        below, spot = todo.pop()
        order.append((below, spot))
        todo += reversed(_operands(below, spot))
    written: list[Wire] = []
    for below, spot in reversed(order):
        operands = [written.pop() for _ in below.children]
        written.append(_write(below, spot, operands, model))
    return written.pop()


def _operands(node: Node, spot: Spot) -> list[tuple[Node, Spot]]:
    """The children and their paths in the JSON value."""
    match node:
        case Text():
            return []
        case Generate(x):
            return [(x, spot / "g" / "input")]
        case Bag(independent=False):
            raise spot.error(
                "a Bag whose children see each other has no wire form. Fix their order with a "
                "Seq, or make them independent."
            )
        case Seq(children) | Bag(children):
            here = spot / _list_name(node)
            return [(child, here / i) for i, child in enumerate(children)]
    raise spot.error(
        f"{type(node).__name__} has no wire form. Write the query in terms of Text, Seq, an "
        "independent Bag and Generate."
    )


def _list_name(node: Seq | Bag) -> str:
    """The operator of a join.

    The package's tokenizer ends spans before the last operand of a cross, but nowhere in a seq:
    the text after a plus in a seq belongs to its last span. It fails on a cross without operands.
    """
    if isinstance(node, Bag):
        return "plus"
    spans = any(isinstance(child, Bag) for child in node.children[:-1])
    return "cross" if spans else "seq"


def _write(node: Node, spot: Spot, operands: list[Wire], model: str) -> Wire:
    match node:
        case Text(content, role):
            return {role.value: content}
        case Generate(sampling=sampling):
            return {"g": {"model": model, "input": operands[0], **_settings(sampling, spot)}}
        case Seq() | Bag():
            return {_list_name(node): operands}
    raise AssertionError(f"{node!r} has no wire form but was not rejected")


def _settings(sampling: Sampling, spot: Spot) -> Wire:
    tokens, temperature = sampling.max_tokens, sampling.temperature
    if replace(Sampling(), max_tokens=tokens, temperature=temperature) != sampling:
        raise spot.error(
            "the wire form of a generation has only max_tokens and temperature. Set top_p, top_k, "
            "seed, stop and labels to their defaults, and send them separately."
        )
    return {"max_tokens": tokens, "temperature": temperature}
