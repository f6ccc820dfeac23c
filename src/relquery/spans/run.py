"""`run` answers a span query, `run_bulk` many with shared parts close in time (paper 002, 5.8)."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from relquery.backends.base import Backend
from relquery.errors import CancelledError, ConfigError, QueryError, RequestError, type_of
from relquery.ir.lower import lower
from relquery.ir.nodes import Bag, Chat, Fragment, Generate, Node, Prepare, Retrieve, Text, Tree
from relquery.ir.optimize import Goal, optimize
from relquery.ir.paths import children_of, distinct, verify
from relquery.ir.rules import Lookup
from relquery.prompt import Span
from relquery.spans.bags import beginnings, order_bags
from relquery.spans.corpus import Corpora, lookup
from relquery.spans.execute import Progress, execute
from relquery.spans.orders import Orders, shared_in_order
from relquery.spans.work import QueryWork, SpanReport, SpanResult


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
    match node:
        case Generate() | Chat() | Retrieve():
            pass
        case Prepare(input=inner):
            yield inner
        case Bag(children=children, independent=True):
            yield from children
        case Fragment():
            yield node
        case _:
            for child in children_of(node):
                yield from _parts(child)


def _spans(part: Node) -> Iterator[Span]:
    """A part as an independent span; nothing if it contains what is not known yet."""
    if not any(isinstance(each, Generate | Chat | Retrieve) for each in distinct(part)):
        yield from lower(optimize(Bag((part,), independent=True)))


def run(
    node: Node,
    backend: Backend,
    *,
    for_: Goal = "cache",
    arity: int = 2,
    corpora: Corpora | None = None,
    independent: bool = True,
    progress: Progress | None = None,
    orders: Orders | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> SpanResult:
    """Answer a span query.

    for_, arity: see `relquery.optimize`; "cache" sends the query's own prompts, "attention" sends
        more and shorter prompts, whose answers differ.
    corpora: what `retrieve` reads, by name: texts, a Corpus, or a function (query, limit) -> texts.
    independent: False sends children of plus as ordinary text, one after another, for providers
        and for comparison. Each child then attends to those before it.
    progress: called with ("generations", answered so far, total).
    orders: the orders of earlier bags. New bags are ordered to share prefixes with them, and their
        orders are recorded there.

    If max_tokens cuts off an inner answer, outer generations read it unchanged. The report notes
    this, also for the outermost answer. Raises QueryError for a tree that cannot be run,
    RequestError with the place of the generation that failed, CancelledError if it was cancelled or
    its deadline passed, and what the backend raises.
    """
    start = clock()
    find = lookup(corpora or {})
    verify(node)
    if independent:
        prepare(node, backend)
    optimized = optimize(node, for_, arity=arity, retrieve=find)
    (ordered,) = order_bags([optimized], orders or Orders())
    work = QueryWork(ordered, find)
    for _ in execute([work], backend, independent=independent, progress=progress):
        pass
    result = result_of(work, clock() - start)
    if result.error is not None:
        raise (CancelledError if work.cancelled else RequestError)(result.error)
    return result


def result_of(work: QueryWork, seconds: float) -> SpanResult:
    """The result of an executed query."""
    report = SpanReport(tuple(work.generations), seconds, tuple(work.notes))
    if work.error is not None:
        return SpanResult((), None, report, work.error)
    texts, answer = work.outcome()
    return SpanResult(texts, answer, report)


_CHARACTERS_PER_TOKEN = 4


def run_bulk(
    nodes: Sequence[Node],
    backend: Backend,
    *,
    cache_tokens: int | None = None,
    for_: Goal = "cache",
    arity: int = 2,
    corpora: Corpora | None = None,
    independent: bool = True,
    progress: Progress | None = None,
    orders: Orders | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[SpanResult]:
    """Answer span queries; results come in the order given.

    They run in an order that brings shared parts close in time, and their bags are ordered so
    that prompts share prefixes.

    cache_tokens: capacity of the backend's cache; by default taken from its config. For the other
        arguments, see `run`.
    A query that cannot run or that fails has an `error` in its result; the others continue.
    """
    start = clock()
    _check(nodes, cache_tokens)
    find = lookup(corpora or {})
    works = _plan(nodes, for_, arity, find, orders or Orders())
    results: dict[int, SpanResult] = {}
    index_of = {id(work): index for index, work in enumerate(works)}
    planned = [work for work in works if isinstance(work, QueryWork)]
    if cache_tokens is None:
        cache_tokens = backend.limits.cache_tokens
    order = order_of([shared_parts(work.root) for work in planned], cache_tokens)
    ordered = [planned[place] for place in order]
    for node, work in zip(nodes, works, strict=True):
        if independent and isinstance(work, QueryWork):
            prepare(node, backend)
    for work in execute(ordered, backend, independent=independent, progress=progress):
        results[index_of[id(work)]] = result_of(work, clock() - start)
    return [
        SpanResult((), None, SpanReport((), 0.0), work) if isinstance(work, str) else results[index]
        for index, work in enumerate(works)
    ]


def _plan(
    nodes: Sequence[Node], for_: Goal, arity: int, find: Lookup, orders: Orders
) -> list[QueryWork | str]:
    """Each query as executable QueryWork, or the reason why it cannot run."""
    trees: dict[int, Node] = {}
    works: dict[int, QueryWork | str] = {}
    for index, node in enumerate(nodes):
        try:
            verify(node)
            trees[index] = optimize(node, for_, arity=arity, retrieve=find)
        except QueryError as error:
            works[index] = str(error)
    ordered = order_bags(list(trees.values()), orders)
    for index, tree in zip(trees, ordered, strict=True):
        try:
            works[index] = QueryWork(tree, find)
        except QueryError as error:
            works[index] = str(error)
    return [works[index] for index in range(len(nodes))]


def _check(nodes: object, cache_tokens: object) -> None:
    if isinstance(nodes, str | Tree) or not isinstance(nodes, Sequence):
        raise QueryError(
            f"run_bulk got {type_of(nodes)}; it takes a list of queries. "
            "For a single query, use run."
        )
    if cache_tokens is not None and (
        isinstance(cache_tokens, bool) or not isinstance(cache_tokens, int) or cache_tokens < 1
    ):
        raise ConfigError(f"cache_tokens is {cache_tokens!r}; it must be an integer of at least 1.")


def passages(root: Node) -> list[str]:
    """The texts of all children of plus in a tree, without duplicates.

    A child made of several texts is given as a hash of its whole content followed by its own
    text. Passages nested in it are also listed by themselves.
    """
    texts: dict[str, None] = {}
    for node in distinct(root):
        if isinstance(node, Bag) and node.independent:
            for child in children_of(node):
                text = _passage(child.input if isinstance(child, Prepare) else child)
                if text:
                    texts[text] = None
    return list(texts)


def _passage(node: Node) -> str:
    """The text of a child of plus; empty if unknown, or if nested passages contain all of it."""
    if isinstance(node, Text | Fragment):
        return node.content
    if any(isinstance(below, Generate | Chat | Retrieve) for below in distinct(node)):
        return ""
    own = "".join(_own_texts(node))
    name = hashlib.blake2b(str(node).encode(), digest_size=8).hexdigest()
    return f"{name} {own}" if own else ""


def _own_texts(node: Node) -> Iterator[str]:
    """The texts of a node that are not inside a nested plus."""
    if isinstance(node, Text | Fragment):
        yield node.content
    elif not isinstance(node, Bag) or not node.independent:
        for child in children_of(node):
            yield from _own_texts(child)


def shared_parts(root: Node) -> list[str]:
    """The distinct parts of a query that a cache may hold: passages, and bag items by prefix."""
    return [*passages(root), *beginnings(root)]


def order_of(rows: Sequence[Sequence[str]], cache_tokens: int | None = None) -> list[int]:
    """An order of queries, given the parts of each, in which queries that share parts are adjacent.

    This reorders a table with one row per query whose columns form one bag. With `cache_tokens`,
    the given order is kept if it is as good.
    """
    given = list(range(len(rows)))
    arranged = shared_in_order(rows, cache_tokens)
    if arranged is None:
        return given
    numbers = [int(row) for row in arranged[1].rows]
    if cache_tokens is None:
        return numbers
    return max((given, numbers), key=lambda order: _hits([rows[i] for i in order], cache_tokens))


def _hits(rows: Sequence[Sequence[str]], cache_tokens: int) -> int:
    """Roughly how many passage tokens an LRU cache serves if they are read in this order."""
    cache: OrderedDict[str, int] = OrderedDict()
    held = hits = 0
    for row in rows:
        for passage in row:
            tokens = len(passage) // _CHARACTERS_PER_TOKEN + 1
            if passage in cache:
                hits += tokens
                cache.move_to_end(passage)
                continue
            cache[passage] = tokens
            held += tokens
            while held > cache_tokens:
                held -= cache.popitem(last=False)[1]
    return hits
