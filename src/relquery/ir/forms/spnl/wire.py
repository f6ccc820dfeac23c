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

from relquery.errors import QueryError
from relquery.ir.forms.spnl.deep_json import decode, encode
from relquery.ir.forms.spnl.read import WireQuery, read
from relquery.ir.forms.spnl.write import write
from relquery.ir.nodes import Node

__all__ = ["WireQuery", "dump_wire", "from_wire", "to_wire"]


def from_wire(
    data: str | bytes | dict[str, object], variables: Mapping[str, object] | None = None
) -> WireQuery:
    """Read a query from JSON text, or from the value of such text.

    variables: values of placeholders like {n}, as text or numbers. None means that the query is
        not a template: braces in its texts are plain text.

    Raises QueryError with line and column if the text is not JSON. Raises it with the path, e.g.
    g.input.seq[2], if the query is malformed or contains itself, a placeholder has no value, the
    query names two models, or it has more than two million nodes.
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
        return read(decode(data.removeprefix("\ufeff")), variables, is_tree=True)
    return read(data, variables)


def to_wire(node: Node, model: str = "default") -> dict[str, object]:
    """The query as the value of JSON text, such that `from_wire(to_wire(node)).node == node`.

    model: the name that every generation gets, since the format requires one.

    Raises QueryError for anything the format cannot express: a Bag that has a separator or whose
    children see each other, settings other than max_tokens and temperature, Prepare and sugar.
    Also raises it for more than two million nodes, counting repeats: `from_wire` reads no more.
    """
    return write(node, model)


def dump_wire(node: Node, model: str = "default") -> str:
    """`to_wire` as JSON text in one line, for trees of any depth."""
    return encode(write(node, model))
