"""Turns a JSON value into a tree with a stack: parents are read first and built last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from relquery.errors import ConfigError, QueryError, unknown
from relquery.ir.nodes import Bag, Generate, Node, Retrieve, Seq, Text
from relquery.ir.paths import children_of, distinct, with_children
from relquery.ir.spnl.fields import (
    MAX_NODES,
    Spot,
    Variables,
    check_count,
    expect_list,
    expect_object,
    expect_text,
)
from relquery.prompt import Role, Sampling


def interleave(first: tuple[Node, ...], second: tuple[Node, ...]) -> Node:
    """The tree of a zip. first, second: the nodes built from its operands.

    Raises QueryError if it depends on the result of a retrieval, or if a random generation would
    occur in several places.
    """
    said, join = _plain(one(first)), _plain(one(second))
    if isinstance(join, Retrieve):
        raise QueryError(
            "the number of passages that the second operand retrieves is known only when it runs. "
            "Retrieve them first and write them into a plus."
        )
    items = _joined_items(join)
    if len(items) > 1 and any(map(_is_random, distinct(said))):
        raise QueryError(
            "the first operand contains a random generation that several places would read. Set "
            "its temperature to 0, or run it in a separate query."
        )
    parts: list[Node] = []
    for item in items:
        parts += [_added(said, item)] if _is_plus(said) else [said, item]
    return with_children(join if isinstance(join, Seq | Bag) else Seq(()), tuple(parts))


def times_interleaved(second: tuple[Node, ...]) -> int:
    """The number of places in which the first operand occurs."""
    return len(_joined_items(_plain(one(second))))


def one(nodes: tuple[Node, ...]) -> Node:
    """One node for what may be several (repeat, map) or none (print, monad)."""
    return nodes[0] if len(nodes) == 1 else Seq(nodes)


def _plain(node: Node) -> Node:
    while isinstance(node, Seq | Bag) and len(node.children) == 1:
        (node,) = children_of(node)
    return node


def _joined_items(join: Node) -> tuple[Node, ...]:
    return children_of(join) if isinstance(join, Seq | Bag) else (join,)


def _is_plus(node: Node) -> bool:
    return isinstance(node, Bag | Retrieve)


def _added(plus: Node, item: Node) -> Node:
    children = children_of(plus) if isinstance(plus, Bag) else (plus,)
    return Bag((*children, item), independent=True)


def _is_random(node: Node) -> bool:
    return isinstance(node, Generate) and node.sampling.temperature > 0


TEMPERATURE = 0.6  # the package's default if a query gives none; null means 0


@dataclass(frozen=True, slots=True)
class WireQuery:
    """The content of a query in wire form.

    model: the model named by all generations; None if there is none.
    messages: texts of `print`, in document order.
    effects: the queries in `monad`, in document order; they may be run beforehand to fill a cache.
    documents: for each corpus of `augment`, the content that came with it, if any.
    """

    node: Node
    model: str | None = None
    messages: tuple[str, ...] = ()
    effects: tuple[Node, ...] = ()
    documents: Mapping[str, str | bytes] = field(default_factory=dict)


def read(value: object, variables: Mapping[str, object] | None) -> WireQuery:
    """See `from_wire` in spnl.wire."""
    return _Reader(Variables(variables)).query(value)


# The nodes that an operator inserts into the surrounding list.
_Nodes = tuple[Node, ...]
_Build = Callable[[list[_Nodes]], _Nodes]
# The number of nodes, from the nodes built for the operands and the count of each operand.
_Count = Callable[[list[_Nodes], list[int]], int]


@dataclass(frozen=True, slots=True)
class _Step:
    """An operator as read: how to build it from its built operands."""

    spot: Spot
    operands: list[tuple[object, Spot]]
    build: _Build
    count: _Count = lambda lists, counts: 1 + sum(counts)


class _Reader:
    def __init__(self, variables: Variables) -> None:
        self.fill = variables
        self.model: str | None = None
        self.messages: list[str] = []
        self.effects: list[Node] = []
        self.documents: dict[str, str | bytes] = {}

    def query(self, value: object) -> WireQuery:
        nodes = self._build(self._steps(value))
        self.effects.reverse()  # steps are built last to first
        return WireQuery(
            one(nodes), self.model, tuple(self.messages), tuple(self.effects), self.documents
        )

    def _steps(self, value: object) -> list[_Step]:
        """All operators, parents first, in document order."""
        steps: list[_Step] = []
        todo: list[tuple[object, Spot]] = [(value, Spot())]
        while todo:
            below, spot = todo.pop()
            step = self._step(below, spot)
            steps.append(step)
            todo += reversed(step.operands)
            check_count(len(steps) + len(todo), MAX_NODES, spot)
        return steps

    def _build(self, steps: list[_Step]) -> _Nodes:
        built: list[tuple[_Nodes, int]] = []  # (nodes, number of nodes including descendants)
        for step in reversed(steps):
            operands = [built.pop() for _ in step.operands]
            lists = [nodes for nodes, _ in operands]
            count = step.count(lists, [count for _, count in operands])
            check_count(count, MAX_NODES, step.spot)
            built.append((step.build(lists), count))
        return built.pop()[0]

    def _step(self, value: object, spot: Spot) -> _Step:
        """The operator of one object."""
        if not isinstance(value, dict) or len(value) != 1:
            got = f"keys {', '.join(map(repr, value))}" if isinstance(value, dict) and value else ""
            got = got or ("an empty object" if isinstance(value, dict) else type(value).__name__)
            raise spot.error(
                f'got {got}; expected an object with one operator, e.g. {{"user": "Hello"}}. '
                "Put several queries into a seq."
            )
        [(name, content)] = value.items()
        if name in _UNREAD:
            raise spot.error(f"'{name}' is not supported: {_UNREAD[name]}")
        if name not in _OPERATORS:
            raise spot.error(unknown("operator", name, _OPERATORS))
        return _OPERATORS[name](self, content, spot / name)

    def _text(self, content: object, spot: Spot) -> _Step:
        text = Text(self.fill.text(content, spot), Role(spot.step))
        return _Step(spot, [], lambda _: (text,))

    def _seq(self, content: object, spot: Spot) -> _Step:
        return _Step(spot, _items(content, spot), lambda lists: (Seq(_joined(lists)),))

    def _plus(self, content: object, spot: Spot) -> _Step:
        return _Step(
            spot,
            _items(content, spot),
            lambda lists: (Bag(_joined(lists), independent=True),),
        )

    def _generate(self, content: object, spot: Spot) -> _Step:
        settings = expect_object(content, spot, ["model", "input"], ["max_tokens", "temperature"])
        sampling = self._settings(settings, spot)
        return _Step(
            spot,
            [(settings["input"], spot / "input")],
            lambda lists: (Generate(one(lists[0]), sampling),),
        )

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

    def _repeat(self, content: object, spot: Spot) -> _Step:
        fields = expect_object(content, spot, ["n"], ["g", "query"])
        if ("g" in fields) == ("query" in fields):
            raise spot.error("expected either 'g' or 'query' next to 'n'. Write one of them.")
        times = self.fill.integer(fields["n"], spot / "n")
        if times < 0:
            raise (spot / "n").error(f"got {times}; expected 0 or more.")
        # "g" is a query with that operator, "query" any query.
        operand = ({"g": fields["g"]}, spot) if "g" in fields else (fields["query"], spot / "query")
        return _Step(
            spot,
            [operand],
            lambda lists: lists[0] * times,
            lambda lists, counts: 1 + times * counts[0],
        )

    def _map(self, content: object, spot: Spot) -> _Step:
        fields = expect_object(content, spot, ["metadata", "inputs"])
        about = spot / "metadata"
        metadata = expect_object(
            fields["metadata"], about, ["model"], ["max_tokens", "temperature"]
        )
        sampling = self._settings(metadata, about)
        nodes = tuple(
            Generate(Text(self.fill.text(text, at)), sampling)
            for text, at in _items(fields["inputs"], spot / "inputs")
        )
        return _Step(spot, [], lambda _: nodes, lambda lists, counts: 1 + 2 * len(nodes))

    def _zip(self, content: object, spot: Spot) -> _Step:
        fields = expect_object(content, spot, ["first", "second"])
        operands = [(fields[name], spot / name) for name in ("first", "second")]

        def build(lists: list[_Nodes]) -> _Nodes:
            try:
                return (interleave(*lists),)
            except QueryError as error:
                raise spot.error(str(error)) from None

        def count(lists: list[_Nodes], counts: list[int]) -> int:
            return 1 + (1 + counts[0]) * times_interleaved(lists[1]) + counts[1]

        return _Step(spot, operands, build, count)

    def _monad(self, content: object, spot: Spot) -> _Step:
        def build(lists: list[_Nodes]) -> _Nodes:
            self.effects.append(one(lists[0]))
            return ()

        return _Step(spot, [(content, spot)], build)

    def _print(self, content: object, spot: Spot) -> _Step:
        self.messages.append(self.fill.text(content, spot))
        return _Step(spot, [], lambda _: ())

    def _augment(self, content: object, spot: Spot) -> _Step:
        fields = expect_object(content, spot, ["body", "doc"], ["embedding_model"])
        if "embedding_model" in fields:  # the index is chosen where the query runs
            expect_text(fields["embedding_model"], spot / "embedding_model")
        corpus = self._document(fields["doc"], spot / "doc")
        return _Step(
            spot,
            [(fields["body"], spot / "body")],
            lambda lists: (Retrieve(one(lists[0]), corpus),),
        )

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


def _items(content: object, spot: Spot) -> list[tuple[object, Spot]]:
    return [(item, spot / i) for i, item in enumerate(expect_list(content, spot))]


def _joined(lists: list[_Nodes]) -> _Nodes:
    return tuple(node for nodes in lists for node in nodes)


_OPERATORS: dict[str, Callable[[_Reader, object, Spot], _Step]] = {
    **dict.fromkeys(["system", "user", "assistant"], _Reader._text),
    **dict.fromkeys(["seq", "par", "cross"], _Reader._seq),
    "plus": _Reader._plus,
    "g": _Reader._generate,
    "repeat": _Reader._repeat,
    "map": _Reader._map,
    "zip": _Reader._zip,
    "monad": _Reader._monad,
    "print": _Reader._print,
    "augment": _Reader._augment,
}
_UNREAD: dict[str, str] = {
    "ask": 'it waits for input at a console. Write the input as text: {"user": "..."}.',
}
