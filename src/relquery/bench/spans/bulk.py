"""Seconds of many queries over shared passages (paper 002, Table 4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relquery import span
from relquery.backends.base import Backend
from relquery.bench.harness import Figure, Say
from relquery.bench.spans.setup import sides
from relquery.config import EngineConfig
from relquery.connection import Connection
from relquery.ir.nodes import Node
from relquery.ir.optimize import optimize
from relquery.spans.execute import execute
from relquery.spans.run import result_of
from relquery.spans.work import Work

if TYPE_CHECKING:
    from relquery.model.load import LoadedModel

GOAL = 0.93
CACHE_SHARE = 0.5  # of the distinct passages
WARM_UP = 4  # queries
Rows = Sequence[Sequence[str]]
Run = Callable[[Connection, list[Node]], int]  # gives the cached tokens


@dataclass(frozen=True, slots=True)
class Bulk:
    """One data set: its size, and the seconds of three ways to answer its queries.

    passages: as they are asked, over those that differ. tokens, distinct: the same in tokens.
    plain: passages as text, in the order given. sparse: as spans, nothing reused. ours: as spans,
    in an order for reuse; cached: its tokens that were.
    """

    name: str
    queries: int
    passages: float
    tokens: int
    distinct: int
    plain: float
    sparse: float
    ours: float
    cached: int

    @property
    def bound(self) -> float:
        """Speedup if each passage were computed once, and all cost alike; see `bound_in_tokens`."""
        return self.passages

    @property
    def bound_in_tokens(self) -> float:
        """The same where a passage costs by its length; repeated ones may be longer."""
        return self.tokens / self.distinct

    @property
    def sparse_gain(self) -> float:
        """Speedup because passages do not attend to one another."""
        return self.plain / self.sparse

    @property
    def speedup(self) -> float:
        """Ours over plain."""
        return self.plain / self.ours

    @property
    def reached(self) -> float:
        """Share of the speedup that both together bound."""
        return self.speedup / (self.bound * self.sparse_gain)


def count_tokens(model: LoadedModel, rows: Rows) -> tuple[int, int]:
    """Tokens of all passages as they are asked, and of those that differ."""
    passages = [passage for row in rows for passage in row]
    distinct = list(dict.fromkeys(passages))
    ids = model.tokenizer(distinct, add_special_tokens=False)["input_ids"]
    length = {passage: len(each) for passage, each in zip(distinct, ids, strict=True)}
    return sum(length[passage] for passage in passages), sum(length.values())


def measure(model: LoadedModel, name: str, rows: Rows, say: Say) -> Bulk:
    """The three ways one after another, each on an engine of its own."""
    tokens, distinct = count_tokens(model, rows)
    longest = max(count_tokens(model, [row])[0] for row in rows)
    config = EngineConfig(cache_tokens=max(int(CACHE_SHARE * distinct), 2 * longest + 1024))
    bare = EngineConfig(cache_tokens=config.cache_tokens, prefix_caching=False)
    plain, _ = _seconds(model, config, rows, span.seq, _in_bulk)
    say(f"{name}, plain: {plain:.1f} s")
    sparse, _ = _seconds(model, bare, rows, span.plus, _as_given)
    say(f"{name}, spans without reuse: {sparse:.1f} s")
    ours, cached = _seconds(model, config, rows, span.plus, _in_bulk)
    say(f"{name}, spans: {ours:.1f} s")
    asked = [passage for row in rows for passage in row]
    repeats = len(asked) / len(set(asked))
    return Bulk(name, len(rows), repeats, tokens, distinct, plain, sparse, ours, cached)


def _seconds(
    model: LoadedModel,
    config: EngineConfig,
    rows: Rows,
    join: Callable[..., Node],
    run: Run,
) -> tuple[float, int]:
    """Seconds of all queries, and tokens that were cached."""
    queries: list[Node] = [
        span.generate(join(row), f"Question {i}: which passage answers it?", max_tokens=1)
        for i, row in enumerate(rows)
    ]
    with sides(model, config, 1) as (connection,):
        run(connection, queries[:WARM_UP])
    with sides(model, config, 1) as (connection,):
        start = time.perf_counter()
        cached = run(connection, queries)
        return time.perf_counter() - start, cached


def _in_bulk(connection: Connection, queries: list[Node]) -> int:
    """As users do; queries without `plus` keep the order given."""
    results = connection.run_bulk(queries)
    assert not any(result.error for result in results)
    return sum(result.report.cached_tokens for result in results)


def _as_given(connection: Connection, queries: list[Node]) -> int:
    """What `run_bulk` does, without its order."""
    backend: Backend = connection.backend
    works = [Work(optimize(query)) for query in queries]
    results = [result_of(work, 0.0) for work in execute(works, backend)]
    assert not any(result.error for result in results)
    return sum(result.report.cached_tokens for result in results)


def figures(bulk: Bulk) -> Iterator[Figure]:
    """How near the bound."""
    note = (
        f"{bulk.speedup:.3f} of bound {bulk.bound:.3f} (in tokens {bulk.bound_in_tokens:.3f}) x "
        f"sparse gain {bulk.sparse_gain:.3f}; "
        f"{bulk.queries:,} queries, {bulk.plain:.1f} / {bulk.ours:.1f} s, "
        f"{bulk.cached / bulk.tokens:.1%} of span tokens cached"
    )
    yield Figure(bulk.name, bulk.reached, GOAL, note=note)
