"""The JSON wire form of span queries, as defined by the public `spnl` package (version 0.22.1).

A query is an object with one key, its operator:

    {"g": {"model": "m", "input": {"cross": [{"system": "..."}, {"plus": [...]}, {"user": "..."}]},
           "max_tokens": 16, "temperature": 0.0}}

    operator                    result
    system, user, assistant     Text
    seq, par, cross             Seq: the package runs par in parallel and joins it in order
    plus                        an independent Bag
    g                           Generate; temperature is 0.6 if missing and 0 if null, as in the
                                package; if max_tokens is missing, null or 0, our default limit
                                applies
    repeat                      the same node n times, inserted into the surrounding list
    map                         one Generate per input, inserted into the surrounding list
    zip                         the first operand before each item of the second (`spnl.zip`)
    augment                     Retrieve from the corpus that doc names (paper 002, R)
    monad                       nothing in the query: it runs for its effect on a cache
    print                       nothing in the query: a message for the user

Earlier versions of the format, used by the queries published with the package, have `print` and
`augment`, and write {"repeat": {"n": 4, "query": ...}} where the current version writes
{"repeat": {"n": 4, "g": {...}}}. We read all of these and write what version 0.22.1 reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from relquery.errors import QueryError
from relquery.ir.nodes import Bag, Generate, Node, Seq, Text
from relquery.ir.paths import check_node
from relquery.ir.spnl.fields import MAX_NODES, Spot, decode, expect_text
from relquery.ir.spnl.read import WireQuery, read
from relquery.ir.verify import check_size
from relquery.prompt import Sampling

Wire = dict[str, object]


def write(node: Node, model: str) -> Wire:
    """See `relquery.ir.spnl.wire.to_wire`."""
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


__all__ = ["WireQuery", "from_wire", "to_wire"]


def from_wire(
    data: str | bytes | dict[str, object], variables: Mapping[str, object] | None = None
) -> WireQuery:
    """Read a query from JSON text, or from the value of such text.

    variables: values of placeholders like {n}, as text or numbers. None means that the query is
        not a template: braces in its texts are plain text.

    Raises QueryError with line and column if the text is not JSON. Raises it with the path, e.g.
    g.input.seq[2], if the query is malformed, a placeholder has no value, the query names two
    models, or it has more than two million nodes.
    """
    if variables is not None and not isinstance(variables, Mapping):
        raise QueryError(f"variables is {variables!r}; it must be a dict, from names to values.")
    if isinstance(data, bytes):
        try:
            data = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise QueryError(
                f"Byte {error.start} of the query is not UTF-8; save the file as UTF-8."
            ) from None
    if isinstance(data, str):
        return read(decode(data.removeprefix("\ufeff")), variables)
    return read(data, variables)


def to_wire(node: Node, model: str = "default") -> dict[str, object]:
    """The query as the value of JSON text, such that `from_wire(to_wire(node)).node == node`.

    model: the name that every generation gets, since the format requires one.

    Raises QueryError for anything the format cannot express: a Bag that has a separator or whose
    children see each other, settings other than max_tokens and temperature, Prepare and sugar.
    Also raises it for more than two million nodes, counting repeats: `from_wire` reads no more.
    """
    return write(node, model)
