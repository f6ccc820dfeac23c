"""From a tree to the prompt that is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from relquery.errors import UnsupportedQueryError
from relquery.ir.nodes import Bag, Fragment, Generate, Node, Prepare, Retrieve, Seq, Text
from relquery.ir.places import children_of, word
from relquery.prompt import Answer, Exchange, Prompt, Reuse, Role, Span


@dataclass(frozen=True, slots=True)
class Answered:
    """A generation that has been run. prompt: what it was asked, as it was lowered."""

    prompt: Prompt
    answer: Answer


Spans = dict[tuple[str, str, Role], Span]
# By id: what has become of a generation, and what a Retrieve stands for.
Known = Mapping[int, Answered | Node]


@dataclass(frozen=True, slots=True)
class _Apart:
    """A child of plus, still to be lowered."""

    node: Node


class _End:
    """The end of a child of plus."""


_END = _End()
# What is still to be lowered, the next last, and what closes its last span.
_Todo = list[tuple[Node | _Apart | _End, str]]


def lower(node: Node, spans: Spans | None = None, known: Known | None = None) -> Prompt:
    """The prompt of one generation: PREFIX spans, one per piece of text that is not empty.

    A Bag's children stand in the order given, and each but the last ends with the separator. Each
    child of plus is an INDEPENDENT span: a generation as the exchange that lies in the cache, or
    as the text of its answer if the backend tells no tokens; anything else as its text, said by
    its role (texts of several roles are the user's, a line each). A plus further down in such a
    child has spans of its own. A plus of one child that is all there is to read is that child.

    A generation anywhere else is the text of its answer, said by the user; in a conversation that
    goes on, right behind the very messages that it answers, it is the assistant's turn.

    spans: shared by the calls for one table, so that equal pieces become one object and are built
        once per distinct cell, not once per row; filled here.
    known: what generations and retrievals inside the input have given, by the id of the node.

    Raises UnsupportedQueryError for those that are not known, and for sugar that `optimize`
    rewrites.
    """
    spans = {} if spans is None else spans
    known = {} if known is None else known
    lowered: list[Span] = []
    runs: list[int] = []  # per child of plus that is under way, where its next span begins
    todo: _Todo = [(_sole(node.input, known) if isinstance(node, Generate) else node, "")]
    while todo:
        current, ending = todo.pop()
        if isinstance(current, Text):
            key = (current.content, ending, current.role)
            span = spans.get(key)
            if span is None:
                span = spans[key] = Span(current.content + ending, current.role)
            if span.content:
                lowered.append(span)
        elif isinstance(current, Seq):
            _push(todo, current.children, "", ending)
        elif isinstance(current, Bag):
            _push_bag(todo, current, ending)
        elif isinstance(current, _Apart):
            _begin(todo, lowered, runs, current.node, known)
        elif isinstance(current, _End):
            _join(lowered, runs.pop())
            runs[-1:] = [len(lowered)] if runs else []
        elif isinstance(current, Generate):
            goes_on = bool(todo) and not ending and not runs
            todo.append((_answer(current, known, lowered, goes_on), ending))
        else:
            todo.append((_meant(current, known), ending))
    return tuple(lowered)


def _push(todo: _Todo, children: tuple[Node, ...], separator: str, ending: str) -> None:
    if children:
        todo.append((children[-1], ending))
        todo += [(child, separator) for child in children[-2::-1]]
    elif ending:
        todo.append((Text(ending), ""))


def _push_bag(todo: _Todo, bag: Bag, ending: str) -> None:
    if not bag.independent:
        _push(todo, bag.children, bag.separator, ending)
        return
    if ending:  # no part of a child of plus, so that each stays as it is
        todo.append((Text(ending), ""))
    todo += [(_Apart(child), "") for child in reversed(bag.children)]


def _begin(todo: _Todo, lowered: list[Span], runs: list[int], node: Node, known: Known) -> None:
    """Begin a child of plus; what stands before it in one that it is part of is a span."""
    if runs:
        _join(lowered, runs[-1])
    if isinstance(node, Generate):
        lowered += _exchange(node, known)
        runs[-1:] = [len(lowered)] if runs else []
    else:
        runs.append(len(lowered))
        todo += [(_END, ""), (node, "")]


def _exchange(node: Generate, known: Known) -> list[Span]:
    """A generation with its input, as it lies in the cache; its text where that is not known."""
    answered = _found(node, known)
    answer = answered.answer
    if answer.tokens is not None:
        exchange = Exchange(answered.prompt, answer.tokens)
        return [Span(exchange, reuse=Reuse.INDEPENDENT)]
    return [Span(answer.text, reuse=Reuse.INDEPENDENT)] if answer.text else []


def _join(lowered: list[Span], start: int) -> None:
    """Make one independent span of the texts from `start` on."""
    if start < len(lowered):
        lowered[start:] = [_joined(lowered[start:])]


def _joined(texts: list[Span]) -> Span:
    roles = [(role, list(run)) for role, run in groupby(texts, lambda span: span.role)]
    parts = ["".join(str(span.content) for span in run) for _, run in roles]
    lines = [part if part.endswith("\n") else f"{part}\n" for part in parts[:-1]]
    role = roles[0][0] if len(roles) == 1 else Role.USER
    return Span("".join([*lines, parts[-1]]), role, Reuse.INDEPENDENT)


def _answer(node: Generate, known: Known, before: list[Span], goes_on: bool) -> Text:
    """The text of an answer; the assistant's if it answers what stands before, and more follows."""
    answered = _found(node, known)
    turn = goes_on and answered.prompt == tuple(before)
    return Text(answered.answer.text or "", Role.ASSISTANT if turn else Role.USER)


def _found(node: Generate, known: Known) -> Answered:
    answered = known.get(id(node))
    if not isinstance(answered, Answered):
        raise UnsupportedQueryError(
            "A prompt holds the answer of another generation, which is not known yet. "
            "Run the inner one first and pass its answer as Text, or run the whole query with "
            "Connection.run."
        )
    return answered


def _meant(node: Node, known: Known) -> Node:
    """What a preparation, a fragment or a retrieval stands for."""
    if isinstance(node, Prepare):
        return node.input
    if isinstance(node, Fragment):
        return Text(node.content)
    found = known.get(id(node))
    if found is None or isinstance(found, Answered):
        raise UnsupportedQueryError(
            f"A prompt holds a {word(node)}, which says nothing yet. "
            "Rewrite the tree with relquery.optimize first."
        )
    return found


def _sole(node: Node, known: Known) -> Node:
    """What is left if joins of one child, plus included, are the child."""
    while True:
        if isinstance(node, Prepare | Retrieve):
            below = _meant(node, known)
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
