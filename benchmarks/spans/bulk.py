"""Seconds of many queries over shared passages (paper 002, Table 4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.spans.on_model import OnModel
from benchmarks.spans.setup import PASSAGES, read_passages, sides
from benchmarks.templates import template
from benchmarks.turns import Turn, alternate, passing_on
from relquery import span
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig
from relquery.connection import Connection
from relquery.ir.nodes import Generate, Node
from relquery.ir.optimize import optimize
from relquery.reordering.reorder import reorder
from relquery.spans.execute import execute
from relquery.spans.orders import Orders, as_table
from relquery.spans.run import result_of
from relquery.spans.work import QueryWork

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

GOAL = 0.93
GOAL_TOKENS = 0.9
CACHE_SHARE = 0.5  # of the distinct passages
WARM_UP = 2  # queries, each asked twice
ORDERED = 200  # queries for which an order is found before anything is timed
# Ways that take turns. More caches at once would not fit the memory of most machines.
TOGETHER = (("sparse", "ours"), ("plain", "ordered"), ("given",))
Rows = Sequence[Sequence[str]]
Run = Callable[[Connection, Rows], int]  # returns the cached tokens


@dataclass(frozen=True, slots=True)
class Bulk:
    """One data set: its size, and the seconds of five ways to answer its queries.

    tokens, distinct: tokens of all passages as asked, and of the distinct ones. plain: passages as
    text, in the given order. ordered: in the order of `reorder`. sparse: as spans in the given
    order, nothing reused. given: the same with reuse. ours: as spans, in an order for reuse.
    given_cached, cached: cached tokens of the last two.
    """

    name: str
    queries: int
    tokens: int
    distinct: int
    plain: float
    ordered: float
    sparse: float
    given: float
    ours: float
    given_cached: int
    cached: int

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds of all ways."""
        return self.plain, self.ordered, self.sparse, self.given, self.ours

    @property
    def bound(self) -> float:
        """Speedup in tokens if each passage were computed once, as an unlimited cache would."""
        return self.tokens / self.distinct

    @property
    def sparse_gain(self) -> float:
        """Speedup because passages do not attend to one another."""
        return self.plain / self.sparse

    @property
    def speedup(self) -> float:
        """Speedup of ours over plain."""
        return self.plain / self.ours

    @property
    def reached(self) -> float:
        """The speedup, as a share of the bound given by both gains together."""
        return self.speedup / (self.bound * self.sparse_gain)

    @property
    def reused(self) -> float | None:
        """Share of the repeated tokens that came from the cache; None where none repeat."""
        repeated = self.tokens - self.distinct
        return self.cached / repeated if repeated else None


def count_tokens(model: ServedModel, rows: Rows) -> tuple[int, int]:
    """Tokens of all passages as asked, and of the distinct ones."""
    passages = [passage for row in rows for passage in row]
    distinct = list(dict.fromkeys(passages))
    ids = model.tokenizer.encode(distinct)
    length = {passage: len(each) for passage, each in zip(distinct, ids, strict=True)}
    return sum(length[passage] for passage in passages), sum(length.values())


def measure(model: ServedModel, name: str, rows: Rows, say: Say) -> Bulk:
    """Time the ways in pairs, taking turns, each on its own engine; see TOGETHER."""
    tokens, distinct = count_tokens(model, rows)
    longest = max(count_tokens(model, [row])[0] for row in rows)
    config = EngineConfig(cache_tokens=max(int(CACHE_SHARE * distinct), 2 * longest + 1024))
    bare = EngineConfig(cache_tokens=config.cache_tokens, prefix_caching=False)
    ways: dict[str, tuple[EngineConfig, Run]] = {
        "plain": (config, _plain),
        "ordered": (config, _ordered),
        "sparse": (bare, _given),
        "given": (config, _given),
        "ours": (config, _in_bulk),
    }
    # What finds orders is compiled at its first use, for which few rows are too few.
    Orders().choose(b"", [tuple(row) for row in rows[:ORDERED]])
    _in_order(rows[:ORDERED])
    few = [*rows[:WARM_UP], *rows[:WARM_UP]]
    for _, run in ways.values():
        with sides(model, EngineConfig(cache_tokens=len(few) * (longest + 1024)), 1) as (
            connection,
        ):
            run(connection, few)
    seconds: dict[str, float] = {}
    cached: dict[str, int] = {}
    for group in TOGETHER:
        served = alternate({way: partial(_served, model, *ways[way], rows) for way in group})
        for way, (took, hit) in served.items():
            seconds[way], cached[way] = took, hit
            say(f"{name}, {way}: {took:.1f} s, {hit:,} tokens cached")
    return Bulk(
        name,
        len(rows),
        tokens,
        distinct,
        **seconds,
        given_cached=cached["given"],
        cached=cached["ours"],
    )


def _served(
    model: ServedModel, config: EngineConfig, run: Run, rows: Rows, turn: Turn
) -> tuple[float, int]:
    """Seconds of all queries, and tokens that were cached."""
    with sides(model, config, 1) as (connection,):
        assert isinstance(connection.backend, EmbeddedBackend)
        with passing_on(connection.backend.engine, turn):
            begin = turn.now()
            cached = run(connection, rows)
            return turn.now() - begin, cached


def _question(number: int) -> str:
    return f"Question {number}: which passage answers it?"


def _as_text(number: int, row: Sequence[str]) -> Generate:
    """One message, as a user of a chat API sends it."""
    return span.generate("".join(row) + _question(number), max_tokens=1)


def _plain(connection: Connection, rows: Rows) -> int:
    return _asked(connection, [_as_text(number, row) for number, row in enumerate(rows)])


def _ordered(connection: Connection, rows: Rows) -> int:
    """Rows and passages in the order of `reorder`, including its time."""
    return _asked(connection, [_as_text(number, row) for number, row in _in_order(rows)])


def _in_order(rows: Rows) -> list[tuple[int, list[str]]]:
    names = [f"passage {column}" for column in range(max(map(len, rows)))]
    schedule = reorder(as_table(rows, names), bags=[names], weight="tokens")
    return [
        (number, [rows[number][column] for column in columns if column < len(rows[number])])
        for number, columns in zip(schedule.rows.tolist(), schedule.fields.tolist(), strict=True)
    ]


def _given(connection: Connection, rows: Rows) -> int:
    return _asked(connection, _as_spans(rows))


def _in_bulk(connection: Connection, rows: Rows) -> int:
    """As users do."""
    results = connection.run_bulk(_as_spans(rows))
    assert not any(result.error for result in results)
    return sum(result.report.cached_tokens for result in results)


def _as_spans(rows: Rows) -> list[Node]:
    return [
        span.generate(span.plus(row), _question(number), max_tokens=1)
        for number, row in enumerate(rows)
    ]


def _asked(connection: Connection, queries: list[Node]) -> int:
    """What `run_bulk` does, in the order given."""
    works = [QueryWork(optimize(query)) for query in queries]
    results = [result_of(work, 0.0) for work in execute(works, connection.backend)]
    assert not any(result.error for result in results)
    return sum(result.report.cached_tokens for result in results)


def figures(bulk: Bulk) -> Iterator[Figure]:
    """How close we get to the bound, in seconds and tokens, and the gain over ordered text."""
    note = (
        f"{bulk.speedup:.3f} of bound {bulk.bound:.3f} in tokens x sparse gain "
        f"{bulk.sparse_gain:.3f}; {bulk.queries:,} queries, "
        f"{bulk.plain:.1f} / {bulk.ours:.1f} s"
    )
    yield Figure(bulk.name, bulk.reached, GOAL, note=note)
    note = (
        f"{bulk.cached:,} of {bulk.tokens - bulk.distinct:,} repeated tokens cached, "
        f"{bulk.given_cached:,} in the order given"
    )
    yield Figure(f"{bulk.name}_tokens", bulk.reused, GOAL_TOKENS, note=note, any_size=True)
    note = (
        f"text in the order of reorder(bags=...) over ours: {bulk.ordered:.1f} / {bulk.ours:.1f} s"
    )
    yield Figure(f"{bulk.name}_ordered", bulk.ordered / bulk.ours, 1.0, note=note)


WORDS = template("spans")


@dataclass(slots=True)
class Bulks(OnModel):
    """The part."""

    name = "bulks"
    title = "Bulks"
    bulks: list[Bulk] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        model = self.load(settings, say)
        for name, file in PASSAGES.items():
            rows = read_passages(settings.data / file, self.sizes.queries)
            if not rows:
                note = f"{settings.data / file} is absent"
                yield Figure(name, None, GOAL, note=note)
                continue
            self.bulks.append(measure(model, name, rows, say))
            yield from figures(self.bulks[-1])

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield self.setting()
        yield WORDS.block("bulk", share=CACHE_SHARE)
        yield from table(
            ("data", "queries", "plain", "ordered", "spans, no reuse", "spans, as given", "ours"),
            [
                (
                    each.name.removeprefix("bulk_"),
                    f"{each.queries:,}",
                    *(f"{seconds:.1f}" for seconds in each.seconds),
                )
                for each in self.bulks
            ],
        )
        yield from table(
            (
                "data",
                "speedup",
                "bound in tokens",
                "reached",
                "over ordered",
                "cached as given",
                "ours",
            ),
            [
                (
                    each.name.removeprefix("bulk_"),
                    *(f"{ratio:.3f}" for ratio in (each.speedup, each.bound, each.reached)),
                    f"{each.ordered / each.ours:.3f}",
                    *(f"{cached / each.tokens:.1%}" for cached in (each.given_cached, each.cached)),
                )
                for each in self.bulks
            ],
        )
