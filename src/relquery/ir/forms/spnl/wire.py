"""The JSON wire form of span queries, as the public `spnl` package has it (version 0.22.1).

A query is an object with one key, its operator:

    {"g": {"model": "m", "input": {"cross": [{"system": "..."}, {"plus": [...]}, {"user": "..."}]},
           "max_tokens": 16, "temperature": 0.0}}

    operator                    what becomes of it
    system, user, assistant     Text
    seq, par, cross             Seq: the package runs par at once, and joins it in order
    plus                        an independent Bag
    g                           Generate; without temperature 0.6, and 0 where it is null, as in
                                the package; max_tokens that is missing, null or 0 leaves the limit
                                to who answers: ours
    repeat                      n times the same node, put into the list where it stands
    map                         one Generate per input, put into the list where it stands
    zip                         the first's messages in between the second's (`ir.wire_zip`)
    augment                     Retrieve from the corpus that doc names (paper 002, R)
    monad                       nothing in the query: it runs for its effect on a cache
    print                       nothing in the query: a message for who runs it

The format's earlier versions, which the queries published with the package are in, have `print` and
`augment`, and write {"repeat": {"n": 4, "query": ...}} for what is {"repeat": {"n": 4, "g": {...}}}
now. All are read; what is written, version 0.22.1 reads.
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

    variables: what placeholders like {n} stand for, as text or numbers. None means that the query
        is no template: braces in its texts are plain text.

    Raises QueryError with line and column where the text is not JSON, and with the path of the
    spot, e.g. g.input.seq[2], where the query is malformed or contains itself, a placeholder is not
    filled, two models are named, or more than two million nodes come out.
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

    model: the name that every generation gets, as the format demands one.

    Raises QueryError for what the format has no words for: a Bag with a separator or whose children
    see one another, settings other than max_tokens and temperature, Prepare and the sugar. So it is
    for more than two million nodes, each counted wherever it stands, as `from_wire` reads no more.
    """
    return write(node, model)


def dump_wire(node: Node, model: str = "default") -> str:
    """`to_wire` as JSON text in one line, for trees of any depth."""
    return encode(write(node, model))
