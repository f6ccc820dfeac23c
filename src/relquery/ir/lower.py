"""Lowering of a tree to the prompt that is sent."""

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
    lowering.add(sole(node.input, lowering.known) if isinstance(node, Generate) else node)
    return tuple(lowering.spans)


_MESSAGES = 0  # the place of texts that are messages of a prompt
_NOWHERE = -1


@dataclass(slots=True)
class _Level:
    """A prompt, or a child of plus, in progress."""

    start: int = 0
    """Position of its first span in the list of all spans."""
    end: int = 0
    """Position after its last text."""
    before: int = _NOWHERE
    """The place of the text right before it."""
    depth: int = 0
    """Of the spans in it."""
    roles: set[Role] = field(default_factory=set)
    """Of the spans in it."""


class _Lowering:
    """One prompt in progress.

    Texts with the same place are neighbours: the messages of a prompt, the texts in a child of
    plus, or the texts in a child of a bag with a separator.
    """

    __slots__ = ("_last", "_levels", "_places", "_shared", "known", "spans")

    def __init__(self, shared: Spans, known: Known) -> None:
        self.known, self.spans = known, list[Span]()
        self._shared = shared
        self._levels = [_Level()]
        self._places = _MESSAGES
        self._last = _NOWHERE  # the place of the text that the last span ends with

    def add(
        self, node: Node, ending: str = "", place: int = _MESSAGES, *, goes_on: bool = False
    ) -> None:
        """Lower a node behind what is there. ending: text that its last span ends with. goes_on:
        whether more of the prompt follows it."""
        if isinstance(node, Text):
            self._say(node.content, node.role, ending, place)
        elif isinstance(node, Seq):
            self._join(node.children, ending, place, goes_on)
        elif isinstance(node, Bag):
            self._bag(node, ending, place, goes_on)
        elif isinstance(node, Generate):
            self._answer(node, ending, place, goes_on)
        else:
            self.add(meant(node, self.known), ending, place, goes_on=goes_on)

    def _say(self, content: str, role: Role, ending: str, place: int) -> None:
        """Add a text, separated from its neighbour if it has one."""
        begins = False
        if not content:  # a separator; it belongs to the turn before it
            begun = len(self.spans) > self._levels[-1].start
            role = self.spans[-1].role if begun else Role.USER
        elif place == self._last:
            content, begins = self._after_neighbour(content, role)
        key = (content, ending, role, begins)
        span = self._shared.get(key)
        if span is None:
            span = self._shared[key] = Span(content + ending, role, begins=begins)
        if span.content:
            self.spans.append(span)
            self._levels[-1].end = len(self.spans)
            self._last = _NOWHERE if ending else place

    def _after_neighbour(self, content: str, role: Role) -> tuple[str, bool]:
        """(the text after its neighbour, whether it begins a message)."""
        before = self.spans[-1]
        if self._last == _MESSAGES:
            return content, before.role is role
        in_turn = len(self._levels) > 1
        return (f"\n{content}" if _runs_on(before, content, role, in_turn) else content), False

    def _join(self, children: tuple[Node, ...], ending: str, place: int, goes_on: bool) -> None:
        if not children and ending:
            self._say("", Role.USER, ending, place)
        last = len(children) - 1
        for index, child in enumerate(children):
            is_last = index == last
            self.add(child, ending if is_last else "", place, goes_on=goes_on or not is_last)

    def _bag(self, bag: Bag, ending: str, place: int, goes_on: bool) -> None:
        children = bag.children
        if bag.independent:
            for child in children:
                self._apart(child)
            if ending:  # not part of a child of plus, so each child is unchanged
                self._say("", Role.USER, ending, place)
        elif not bag.separator or not children:
            self._join(children, ending, place, goes_on)
        else:
            first, endings = self._places + 1, [bag.separator] * (len(children) - 1)
            self._places += len(children)
            for own, (child, end) in enumerate(
                zip(children, [*endings, ending], strict=True), first
            ):
                self.add(child, end, own)

    def _apart(self, node: Node) -> None:
        """Add a child of plus: one span. Spans after its last text can stay next to it."""
        spans = self.spans
        if isinstance(node, Generate):
            exchange = exchange_of(node, self.known)
            if exchange is not None:
                spans.append(exchange)
                self._levels[-1].roles.add(exchange.role)
                self._last = _NOWHERE
            return
        self._places += 1
        level = _Level(len(spans), len(spans), self._last)
        self._levels.append(level)
        self.add(node, "", self._places)
        self._levels.pop()
        if len(spans) == level.start:
            self._last = level.before  # the texts around it are neighbours
            return
        self._last = _NOWHERE
        self._end(level)

    def _end(self, level: _Level) -> None:
        """Join the texts of a child of plus, with the spans between them, and check its depth."""
        spans, depth = self.spans, level.depth
        own = spans[level.start : level.end]
        roles = level.roles.union(span.role for span in own)
        if own:
            if len(roles) > 1:
                roles = {Role.USER}
                spans[level.end :] = [replace(each, role=Role.USER) for each in spans[level.end :]]
            (role,) = roles
            spans[level.start : level.end] = [span] = [_one_span(own, role)]
            depth += isinstance(span.content, Nest)
        if depth > MAX_NESTING:
            raise QueryError(
                f"Spans are nested more than {MAX_NESTING} levels deep (a plus in a child of "
                "plus). Write the inner ones as plain text."
            )
        around = self._levels[-1]
        around.roles |= roles
        around.depth = max(around.depth, depth)

    def _answer(self, node: Generate, ending: str, place: int, goes_on: bool) -> None:
        """Add an answer; the assistant's if it answers the text before it and more text follows."""
        answered = found(node, self.known)
        is_turn = goes_on and place == _MESSAGES and answered.prompt == tuple(self.spans)
        role = Role.ASSISTANT if is_turn else Role.USER
        self._say(answered.answer.text or "", role, ending, place)


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
