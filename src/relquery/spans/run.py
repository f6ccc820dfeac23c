"""`run` answers one span query."""

from __future__ import annotations

import time
from collections.abc import Callable

from relquery.backends.base import Backend
from relquery.errors import CancelledError, RequestError
from relquery.ir.nodes import Node
from relquery.ir.optimize import Goal, optimize
from relquery.ir.verify import verify
from relquery.spans.ahead import prepare
from relquery.spans.bags import order_bags
from relquery.spans.corpus import Corpora, lookup
from relquery.spans.execute import Progress, execute
from relquery.spans.orders import Orders
from relquery.spans.result import SpanReport, SpanResult
from relquery.spans.work import Work


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
    work = Work(ordered, find)
    for _ in execute([work], backend, independent=independent, progress=progress):
        pass
    result = result_of(work, clock() - start)
    if result.error is not None:
        raise (CancelledError if work.cancelled else RequestError)(result.error)
    return result


def result_of(work: Work, seconds: float) -> SpanResult:
    """The result of an executed query."""
    report = SpanReport(tuple(work.generations), seconds, tuple(work.notes))
    if work.error is not None:
        return SpanResult((), None, report, work.error)
    texts, answer = work.outcome()
    return SpanResult(texts, answer, report)
