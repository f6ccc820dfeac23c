"""Texts whose states are computed before a generation reads them (paper 002: `G¹`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relquery.backends.base import Backend
from relquery.ir.lower import lower
from relquery.ir.nodes import Bag, Chat, Fragment, Generate, Node, Prepare, Retrieve
from relquery.ir.optimize import optimize
from relquery.ir.paths import children_of
from relquery.prompt import Span


def prepare(node: Node, backend: Backend) -> int:
    """Compute the states of what a tree asks to prepare, each text by itself; returns how many.

    That is the input of `prepare`, and each child of plus, where no generation reads it: one that
    does computes it anyway. Later queries use the states wherever they have the same text as a
    child of plus.
    """
    spans = [span for part in _parts(node) for span in _spans(part)]
    if spans:
        backend.insight.prepare([(replace(span, keep=1),) for span in spans])
    return len(spans)


def _parts(node: Node) -> Iterator[Node]:
    """What a tree asks to prepare, in order."""
    todo = [node]
    while todo:
        current = todo.pop()
        match current:
            case Generate() | Chat() | Retrieve():
                pass
            case Prepare(input=inner):
                yield inner
            case Bag(children=children, independent=True):
                yield from children
            case Fragment():
                yield current
            case _:
                todo += reversed(children_of(current))


def _spans(part: Node) -> Iterator[Span]:
    """A part as an independent span; nothing if it contains what is not known yet."""
    todo = [part]
    while todo:
        current = todo.pop()
        if isinstance(current, Generate | Chat | Retrieve):
            return
        todo += children_of(current)
    yield from lower(optimize(Bag((part,), independent=True)))
