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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from relquery.errors import ConfigError, QueryError, unknown
from relquery.ir.nodes import (
    MAX_DEPTH,
    TOO_DEEP,
    Bag,
    Generate,
    Node,
    Retrieve,
    Seq,
    Text,
    too_large,
)
from relquery.ir.paths import check_node, children_of, distinct, with_children
from relquery.ir.wire_fields import (
    Spot,
    Variables,
    decode,
    expect_list,
    expect_object,
    expect_text,
)
from relquery.prompt import Role, Sampling

MAX_NODES = 2_000_000
"""Nodes of a query in wire form."""
TEMPERATURE = 0.6
"""The package's default if a query gives none; null means 0."""
Wire = dict[str, object]
_Nodes = tuple[Node, ...]
"""What an operator inserts into the surrounding list."""


@dataclass(frozen=True, slots=True)
class WireQuery:
    """The content of a query in wire form."""

    node: Node
    model: str | None = None
    """The model named by all generations; None if there is none."""
    messages: tuple[str, ...] = ()
    """Texts of `print`, in document order."""
    effects: tuple[Node, ...] = ()
    """The queries in `monad`, in document order; they may be run beforehand to fill a cache."""
    documents: Mapping[str, str | bytes] = field(default_factory=dict)
    """For each corpus of `augment`, the content that came with it, if any."""


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
        data = decode(data.removeprefix("\ufeff"))  # type: ignore[assignment]
    return read_value(data, variables)


def read_value(value: object, variables: Mapping[str, object] | None) -> WireQuery:
    """See `from_wire`; value: of JSON text."""
    try:
        return _Reader(Variables(variables)).query(value)
    except RecursionError:
        raise QueryError(TOO_DEEP) from None


class _Reader:
    def __init__(self, variables: Variables) -> None:
        self.fill = variables
        self.model: str | None = None
        self.messages: list[str] = []
        self.effects: list[Node] = []
        self.documents: dict[str, str | bytes] = {}
        self._count = 0

    def query(self, value: object) -> WireQuery:
        node = _one(self.read(value, Spot()))
        _check_size(node)
        return WireQuery(
            node, self.model, tuple(self.messages), tuple(self.effects), self.documents
        )

    def read(self, value: object, spot: Spot) -> _Nodes:
        """What the operator of one object gives."""
        self._add(1, spot)
        if not isinstance(value, dict) or len(value) != 1:
            got = f"keys {', '.join(map(repr, value))}" if isinstance(value, dict) and value else ""
            got = got or ("an empty object" if isinstance(value, dict) else type(value).__name__)
            raise spot.error(
                f'got {got}; expected an object with one operator, e.g. {{"user": "Hello"}}. '
                "Put several queries into a seq."
            )
        [(name, content)] = value.items()
        if name == "ask":
            raise spot.error(
                "'ask' is not supported: it waits for input at a console. Write the input as "
                'text: {"user": "..."}.'
            )
        if name in _JOINS:
            return (with_children(_JOINS[name], self._list(content, spot / name)),)
        if name not in _OPERATORS:
            raise spot.error(unknown("operator", name, (*_OPERATORS, *_JOINS)))
        return _OPERATORS[name](self, content, spot / name)

    def _add(self, count: int, spot: Spot) -> None:
        """Count what is read and made. Raises QueryError where it is too much."""
        self._count += count
        if self._count > MAX_NODES:
            raise spot.error(
                f"the query has more than {MAX_NODES:,} nodes. Repeat less, or use several queries."
            )
        if spot.depth > 2 * MAX_DEPTH:  # of the path, which has two steps for each node
            raise spot.error(TOO_DEEP)

    def _list(self, content: object, spot: Spot) -> _Nodes:
        nodes: list[Node] = []
        for number, item in enumerate(expect_list(content, spot)):
            nodes += self.read(item, spot / number)
        return tuple(nodes)

    def text(self, content: object, spot: Spot) -> _Nodes:
        return (Text(self.fill.text(content, spot), Role(spot.step)),)

    def generate(self, content: object, spot: Spot) -> _Nodes:
        settings = expect_object(content, spot, ["model", "input"], ["max_tokens", "temperature"])
        sampling = self._settings(settings, spot)
        return (Generate(_one(self.read(settings["input"], spot / "input")), sampling),)

    def _settings(self, settings: Mapping[str, object], spot: Spot) -> Sampling:
        """The settings of a generation; records its model."""
        model = self.fill.name(settings["model"], spot / "model")
        if self.model not in (None, model):
            raise (spot / "model").error(
                f"the model is '{model}', but '{self.model}' was named before; a query runs on one "
                "model. Name the same model, or use two queries."
            )
        self.model = model
        limit, temperature = settings.get("max_tokens"), settings.get("temperature", TEMPERATURE)
        tokens = 0 if limit is None else self.fill.integer(limit, spot / "max_tokens")
        heat = 0.0
        if temperature is not None:
            heat = self.fill.number(temperature, spot / "temperature")
        try:
            return Sampling(max_tokens=tokens or Sampling().max_tokens, temperature=heat)
        except ConfigError as error:
            raise spot.error(str(error)) from None

    def repeat(self, content: object, spot: Spot) -> _Nodes:
        fields = expect_object(content, spot, ["n"], ["g", "query"])
        if ("g" in fields) == ("query" in fields):
            raise spot.error("expected either 'g' or 'query' next to 'n'. Write one of them.")
        times = self.fill.integer(fields["n"], spot / "n")
        if times < 0:
            raise (spot / "n").error(f"got {times}; expected 0 or more.")
        # "g" is a query with that operator, "query" any query.
        nodes = (
            self.read({"g": fields["g"]}, spot)
            if "g" in fields
            else self.read(fields["query"], spot / "query")
        )
        self._add(len(nodes) * (times - 1), spot)
        return nodes * times

    def map(self, content: object, spot: Spot) -> _Nodes:
        fields = expect_object(content, spot, ["metadata", "inputs"])
        about, inputs = spot / "metadata", spot / "inputs"
        metadata = expect_object(
            fields["metadata"], about, ["model"], ["max_tokens", "temperature"]
        )
        sampling = self._settings(metadata, about)
        return tuple(
            Generate(Text(self.fill.text(text, inputs / number)), sampling)
            for number, text in enumerate(expect_list(fields["inputs"], inputs))
        )

    def zip(self, content: object, spot: Spot) -> _Nodes:
        fields = expect_object(content, spot, ["first", "second"])
        said, join = (
            _plain(_one(self.read(fields[name], spot / name))) for name in ("first", "second")
        )
        if isinstance(join, Retrieve):
            raise spot.error(
                "the number of passages that the second operand retrieves is known only when it "
                "runs. Retrieve them first and write them into a plus."
            )
        items = children_of(join) if isinstance(join, Seq | Bag) else (join,)
        if len(items) > 1 and any(map(_is_random, distinct(said))):
            raise spot.error(
                "the first operand contains a random generation that several places would read. "
                "Set its temperature to 0, or run it in a separate query."
            )
        self._add(2 * len(items), spot)
        parts: list[Node] = []
        for item in items:
            parts += [_added(said, item)] if _is_plus(said) else [said, item]
        return (with_children(join if isinstance(join, Seq | Bag) else Seq(()), tuple(parts)),)

    def monad(self, content: object, spot: Spot) -> _Nodes:
        self.effects.append(_one(self.read(content, spot)))
        return ()

    def print(self, content: object, spot: Spot) -> _Nodes:
        self.messages.append(self.fill.text(content, spot))
        return ()

    def augment(self, content: object, spot: Spot) -> _Nodes:
        fields = expect_object(content, spot, ["body", "doc"], ["embedding_model"])
        if "embedding_model" in fields:  # the index is chosen where the query runs
            expect_text(fields["embedding_model"], spot / "embedding_model")
        corpus = self._document(fields["doc"], spot / "doc")
        return (Retrieve(_one(self.read(fields["body"], spot / "body")), corpus),)

    def _document(self, doc: object, spot: Spot) -> str:
        """The name of a corpus, given as name or [name, content]; records the content."""
        if isinstance(doc, str):
            return self.fill.name(doc, spot)
        pair = expect_list(doc, spot)
        if len(pair) != 2:
            raise spot.error(f"got a list of {len(pair)}; expected [name, content].")
        name = self.fill.name(pair[0], spot / 0)
        content = _content(pair[1], spot / 1)
        if self.documents.setdefault(name, content) != content:
            raise (spot / 1).error(f"'{name}' had different content before. Use another name.")
        return name


def _content(value: object, spot: Spot) -> str | bytes:
    """The content of a document: {"Text": "..."} or {"Binary": [1, 2]}."""
    fields = expect_object(value, spot, [], ["Text", "Binary"])
    if len(fields) != 1:
        raise spot.error("expected either 'Text' or 'Binary'; write one of them.")
    if "Text" in fields:
        return expect_text(fields["Text"], spot / "Text")
    numbers = expect_list(fields["Binary"], spot / "Binary")
    if not all(isinstance(number, int) and 0 <= number < 256 for number in numbers):
        raise (spot / "Binary").error("expected a list of bytes, 0 to 255.")
    return bytes(numbers)  # type: ignore[arg-type]


_JOINS: dict[str, Seq | Bag] = {
    **dict.fromkeys(["seq", "par", "cross"], Seq(())),
    "plus": Bag((), independent=True),
}
_OPERATORS: dict[str, Callable[[_Reader, object, Spot], _Nodes]] = {
    **dict.fromkeys(["system", "user", "assistant"], _Reader.text),
    "g": _Reader.generate,
    "repeat": _Reader.repeat,
    "map": _Reader.map,
    "zip": _Reader.zip,
    "monad": _Reader.monad,
    "print": _Reader.print,
    "augment": _Reader.augment,
}


def _check_size(node: Node) -> None:
    if node.size > MAX_NODES:
        raise QueryError(too_large(MAX_NODES))


def _one(nodes: _Nodes) -> Node:
    """One node for what may be several (repeat, map) or none (print, monad)."""
    return nodes[0] if len(nodes) == 1 else Seq(nodes)


def _plain(node: Node) -> Node:
    while isinstance(node, Seq | Bag) and len(node.children) == 1:
        (node,) = children_of(node)
    return node


def _is_plus(node: Node) -> bool:
    return isinstance(node, Bag | Retrieve)


def _added(plus: Node, item: Node) -> Node:
    children = children_of(plus) if isinstance(plus, Bag) else (plus,)
    return Bag((*children, item), independent=True)


def _is_random(node: Node) -> bool:
    return isinstance(node, Generate) and node.sampling.temperature > 0


def to_wire(node: Node, model: str = "default") -> dict[str, object]:
    """The query as the value of JSON text, such that `from_wire(to_wire(node)).node == node`.

    model: the name that every generation gets, since the format requires one.

    Raises QueryError for anything the format cannot express: a Bag that has a separator or whose
    children see each other, settings other than max_tokens and temperature, Prepare and sugar.
    Also raises it for more than two million nodes, counting repeats: `from_wire` reads no more.
    """
    expect_text(model, Spot() / "model")
    check_node(node)
    _check_size(node)  # JSON repeats a shared node in each place
    return _write(node, Spot(), model)


def _write(node: Node, spot: Spot, model: str) -> Wire:
    match node:
        case Text(content, role):
            return {role.value: content}
        case Generate(inner, sampling):
            written = _write(inner, spot / "g" / "input", model)
            return {"g": {"model": model, "input": written, **_settings(sampling, spot)}}
        case Bag(independent=False):
            raise spot.error(
                "a Bag whose children see each other has no wire form. Fix their order with a "
                "Seq, or make them independent."
            )
        case Seq(children) | Bag(children):
            name = _list_name(node)
            here, items = spot / name, list[Wire]()
            for number, child in enumerate(children):
                items.append(_write(child, here / number, model))
            return {name: items}
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


def _settings(sampling: Sampling, spot: Spot) -> Wire:
    tokens, temperature = sampling.max_tokens, sampling.temperature
    if replace(Sampling(), max_tokens=tokens, temperature=temperature) != sampling:
        raise spot.error(
            "the wire form of a generation has only max_tokens and temperature. Set top_p, top_k, "
            "seed, stop and labels to their defaults, and send them separately."
        )
    return {"max_tokens": tokens, "temperature": temperature}
