"""Lowers a tree to the prompt that is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.ir.nodes import Bag, Fragment, Generate, Node, Prepare, Retrieve, Seq, Text
from relquery.ir.paths import children_of, word
from relquery.prompt import Answer, Exchange, Nest, Prompt, Reuse, Role, Span


@dataclass(frozen=True, slots=True)
class Answered:
    """A generation that has been run. prompt: its lowered prompt."""

    prompt: Prompt
    answer: Answer


# By node id: the result of a generation, or the node that replaces a Retrieve.
Known = Mapping[int, Answered | Node]


def exchange_of(node: Generate, known: Known) -> Span | None:
    """A generation with its input, as it is in the cache; its text if the tokens are unknown."""
    answered = found(node, known)
    answer = answered.answer
    if answer.tokens is not None:
        return Span(Exchange(answered.prompt, answer.tokens), reuse=Reuse.INDEPENDENT)
    return Span(answer.text, reuse=Reuse.INDEPENDENT) if answer.text else None


def found(node: Generate, known: Known) -> Answered:
    """The result of a generation. Raises UnsupportedQueryError if it is not known."""
    answered = known.get(id(node))
    if not isinstance(answered, Answered):
        raise UnsupportedQueryError(
            "A prompt contains the answer of another generation, which is not known yet. "
            "Run the inner one first and pass its answer as Text, or run the whole query with "
            "Connection.run."
        )
    return answered


def meant(node: Node, known: Known) -> Node:
    """The node that replaces a preparation, a fragment or a retrieval."""
    if isinstance(node, Prepare):
        return node.input
    if isinstance(node, Fragment):
        return Text(node.content)
    stands_for = known.get(id(node))
    if stands_for is None or isinstance(stands_for, Answered):
        raise UnsupportedQueryError(
            f"A prompt contains a {word(node)}, which has not been resolved yet. "
            "Rewrite the tree with relquery.optimize first."
        )
    return stands_for


def sole(node: Node, known: Known) -> Node:
    """The node without its outer joins of one child, including plus."""
    while True:
        if isinstance(node, Prepare | Retrieve):
            below = meant(node, known)
        elif isinstance(node, Seq | Bag):
            kept = [child for child in children_of(node) if not _is_empty(child)]
            if len(kept) != 1 or (isinstance(node, Bag) and node.separator):
                return node
            (below,) = kept
        else:
            return node
        node = below


def _is_empty(node: Node) -> bool:
    return isinstance(node, Text) and not node.content


MAX_NESTING = 64  # levels of spans inside spans


Spans = dict[tuple[str, str, Role, bool], Span]


def lower(node: Node, spans: Spans | None = None, known: Known | None = None) -> Prompt:
    """The prompt of one generation: PREFIX spans, one per piece of text that is not empty.

    Consecutive texts are separate messages. A Bag with a separator is a list inside a message: it
    joins the texts next to it. Its children keep the given order, and each except the last ends
    with the separator.

    Each child of plus is an INDEPENDENT span. A generation becomes its exchange as it is in the
    cache, or the text of its answer if the backend gives no tokens. Anything else becomes its text
    under its role; texts of several roles become the user's. A plus in such a child has its own
    spans inside that span: the text after them attends to them, but to nothing outside. If a plus
    with one child is the whole input, it is replaced by that child.

    Within one message, and in a child of plus, a line break is added between consecutive texts
    that have no space or line break between them.

    A generation anywhere else becomes the text of its answer, said by the user. If it directly
    follows exactly the messages that it answers and the conversation continues, it becomes the
    assistant's turn.

    spans: shared by the calls for one table, so that equal pieces become one object and are built
        once per distinct cell, not once per row; filled here.
    known: the results of generations and retrievals inside the input, by the id of the node.

    Raises UnsupportedQueryError if such a result is not known, and for sugar that `optimize`
    rewrites; QueryError for more than MAX_NESTING levels of spans.
    """
    lowering = _Lowering({} if spans is None else spans, {} if known is None else known)
    return lowering.run(node)


@dataclass(frozen=True, slots=True)
class _Apart:
    """A child of plus, still to be lowered."""

    node: Node


class _End:
    """The end of a child of plus."""


_MESSAGES = 0  # the place of texts that are messages of a prompt
_NOWHERE = -1


@dataclass(slots=True)
class _Level:
    """A prompt, or a child of plus, in progress.

    place: the place of its own texts, see `_Lowering`. start, end: positions in the list of all
    spans, of its first span and after its last text. before: the place of the text right before
    it. depth, roles: those of the spans in it.
    """

    place: int
    start: int = 0
    end: int = 0
    before: int = _NOWHERE
    depth: int = 0
    roles: set[Role] = field(default_factory=set)


_END = _End()
# (what to lower, the text that ends its last span, its place); the next item is the last.
_Todo = list[tuple[Node | _Apart | _End, str, int]]


class _Lowering:
    """One prompt in progress.

    Texts with the same place are neighbours: the messages of a prompt, the texts in a child of
    plus, or the texts in a child of a bag with a separator.
    """

    __slots__ = ("_known", "_last", "_levels", "_places", "_shared", "_spans", "_todo")

    def __init__(self, shared: Spans, known: Known) -> None:
        self._shared, self._known = shared, known
        self._spans: list[Span] = []
        self._levels = [_Level(_MESSAGES)]
        self._places = _MESSAGES
        self._last = _NOWHERE  # the place of the text that the last span ends with
        self._todo: _Todo = []

    def run(self, node: Node) -> Prompt:
        """The prompt of a generation, or of a part of its input."""
        root = sole(node.input, self._known) if isinstance(node, Generate) else node
        todo = self._todo
        todo.append((root, "", _MESSAGES))
        while todo:
            current, ending, place = todo.pop()
            if isinstance(current, Text):
                self._say(current.content, current.role, ending, place)
            elif isinstance(current, Seq):
                self._push(current.children, ending, place)
            elif isinstance(current, Bag):
                self._push_bag(current, ending, place)
            elif isinstance(current, _Apart):
                self._begin(current.node)
            elif isinstance(current, _End):
                self._end()
            elif isinstance(current, Generate):
                self._answer(current, ending, place)
            else:
                todo.append((meant(current, self._known), ending, place))
        return tuple(self._spans)

    def _say(self, content: str, role: Role, ending: str, place: int) -> None:
        """Add a text, separated from its neighbour if it has one."""
        begins = False
        if not content:  # a separator; it belongs to the turn before it
            begun = len(self._spans) > self._levels[-1].start
            role = self._spans[-1].role if begun else Role.USER
        elif place == self._last:
            content, begins = self._apart(content, role)
        key = (content, ending, role, begins)
        span = self._shared.get(key)
        if span is None:
            span = self._shared[key] = Span(content + ending, role, begins=begins)
        if span.content:
            self._spans.append(span)
            self._levels[-1].end = len(self._spans)
            self._last = _NOWHERE if ending else place

    def _apart(self, content: str, role: Role) -> tuple[str, bool]:
        """(the text after its neighbour, whether it begins a message)."""
        before = self._spans[-1]
        if self._last == _MESSAGES:
            return content, before.role is role
        in_turn = len(self._levels) > 1
        return (f"\n{content}" if _runs_on(before, content, role, in_turn) else content), False

    def _push(self, children: tuple[Node, ...], ending: str, place: int) -> None:
        if children:
            self._todo.append((children[-1], ending, place))
            self._todo += [(child, "", place) for child in children[-2::-1]]
        elif ending:
            self._todo.append((_NOTHING, ending, place))

    def _push_bag(self, bag: Bag, ending: str, place: int) -> None:
        children = bag.children
        if bag.independent:
            if ending:  # not part of a child of plus, so each child is unchanged
                self._todo.append((_NOTHING, ending, place))
            self._todo += [(_Apart(child), "", place) for child in reversed(children)]
        elif not bag.separator or not children:
            self._push(children, ending, place)
        else:
            self._places = last = self._places + len(children)
            self._todo.append((children[-1], ending, last))
            self._todo += [
                (child, bag.separator, last - back)
                for back, child in enumerate(children[-2::-1], 1)
            ]

    def _begin(self, node: Node) -> None:
        """Begin a child of plus."""
        if isinstance(node, Generate):
            exchange = exchange_of(node, self._known)
            if exchange is not None:
                self._spans.append(exchange)
                self._levels[-1].roles.add(exchange.role)
                self._last = _NOWHERE
        else:
            self._places += 1
            start = len(self._spans)
            self._levels.append(_Level(self._places, start, start, self._last))
            self._todo += [(_END, "", _NOWHERE), (node, "", self._places)]

    def _end(self) -> None:
        """Make one span of a child of plus; spans after its last text can stay next to it."""
        level, spans = self._levels.pop(), self._spans
        if len(spans) == level.start:
            self._last = level.before  # the texts around it are neighbours
            return
        self._last, depth = _NOWHERE, level.depth
        own = spans[level.start : level.end]
        roles = level.roles.union(span.role for span in own)
        if own:
            if len(roles) > 1:
                roles = {Role.USER}
                spans[level.end :] = [replace(each, role=Role.USER) for each in spans[level.end :]]
            (role,) = roles
            spans[level.start : level.end] = [span] = [_one_span(own, role)]
            depth += isinstance(span.content, Nest)
        self._levels[-1].roles |= roles
        if depth > MAX_NESTING:
            raise QueryError(
                f"Spans are nested more than {MAX_NESTING} levels deep (a plus in a child of "
                "plus). Write the inner ones as plain text."
            )
        self._levels[-1].depth = max(self._levels[-1].depth, depth)

    def _answer(self, node: Generate, ending: str, place: int) -> None:
        """Add an answer; the assistant's if it answers the text before it and more text follows."""
        answered = found(node, self._known)
        goes_on = bool(self._todo) and place == _MESSAGES and answered.prompt == tuple(self._spans)
        role = Role.ASSISTANT if goes_on else Role.USER
        self._say(answered.answer.text or "", role, ending, place)


_NOTHING = Text("")


def _runs_on(before: Span, content: str, role: Role, in_turn: bool) -> bool:
    """Whether a text would run on from the one before it if they were joined unchanged.

    in_turn: both belong to one turn, even if their roles differ.
    """
    assert isinstance(before.content, str)
    if before.role is not role:
        return in_turn and not before.content.endswith("\n")
    return not (before.content[-1].isspace() or content[0].isspace())


def _one_span(spans: list[Span], role: Role) -> Span:
    """One independent span made of texts and the spans before or between them."""
    parts: list[Span] = []
    texts: list[str] = []
    for span in spans:
        if span.reuse is Reuse.PREFIX:
            texts.append(str(span.content))
            continue
        if texts:
            parts.append(Span("".join(texts), role))
            texts = []
        parts.append(span)
    text = Span("".join(texts), role, Reuse.INDEPENDENT)
    if not parts:
        return text
    return Span(Nest((*parts, Span(text.content, role))), role, Reuse.INDEPENDENT)
