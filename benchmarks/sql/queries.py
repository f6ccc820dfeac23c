"""A filter and a projection over Movies: ordered, in the original order, and without a cache."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.sql.sizes import FULL, Sizes, choose
from benchmarks.templates import template
from benchmarks.timed_query import run_query
from benchmarks.turns import Turn, alternate
from relquery.config import EngineConfig, Order
from relquery.report import Report

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

WORDS = template("sql")

FILE = "movies/movies.parquet"
FILTER = """
    SELECT movietitle FROM movies WHERE LLM('Given the following fields, answer in one word,
    ''Yes'' or ''No'', whether the movie would be suitable for kids. Answer with ONLY ''Yes'' or
    ''No''.', movies.*) = 'Yes'"""
PROJECTION = """
    SELECT LLM('Given information including movie descriptions and critic reviews, summarize the
    good qualities in this movie that led to a favorable rating.', reviewcontent, movieinfo)
    FROM movies"""
"""Paper 000, appendices A and C: its filter (T1) and projection (T2) on Movies."""
GOALS = {
    "filter_ggr_over_original": 3.4,
    "filter_ggr_over_no_cache": 4.0,
    "filter_hit_rate": 0.8,
    "projection_ggr_over_original": 1.5,
}
GGR, ORIGINAL, NO_CACHE = "ggr", "original", "no cache"
ORDERS: dict[str, Order] = {GGR: "ggr", ORIGINAL: "original", NO_CACHE: "original"}


@dataclass(frozen=True, slots=True)
class Query:
    """The SQL, its sides, and the tokens of an answer."""

    name: str
    sql: str
    sides: tuple[str, ...]
    max_tokens: int


QUERIES = (
    Query("filter", FILTER, (GGR, ORIGINAL, NO_CACHE), 2),
    Query("projection", PROJECTION, (GGR, ORIGINAL), 16),
)


@dataclass(frozen=True, slots=True)
class Ran:
    """A side's run of a query. seconds: of its turns."""

    report: Report
    seconds: float


@dataclass(slots=True)
class Queries(Part):
    """The part. ran: by query and side."""

    name = "queries"
    title = "Queries"
    sizes: Sizes = FULL
    parameters: int = 0
    rows: int = 0
    ran: dict[str, dict[str, Ran]] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import parameters, set_threads

        path = settings.data / FILE
        if not path.exists():
            for name, goal in GOALS.items():
                yield Figure(name, None, goal, note=f"{path} is absent")
            return
        set_threads(settings.threads)
        self.sizes = choose(settings.quick)
        movies = pq.read_table(path).slice(0, self.sizes.rows)
        model = load_model(movies, self.sizes)
        self.parameters, self.rows = parameters(model), movies.num_rows
        for query in QUERIES:
            run(model, movies.slice(0, 64), query)  # compiles
            self.ran[query.name] = run(model, movies, query)
            for side, ran in self.ran[query.name].items():
                say(f"{query.name}, {side}: {ran.seconds:.1f} s, {ran.report.hit_rate:.1%} cached")
        yield from figures(self.ran)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        if not self.ran:
            return
        yield WORDS.block("queries", rows=self.rows)
        yield WORDS.block(
            "model",
            model=self.sizes.model,
            parameters=self.parameters / 1e6,
            vocabulary=self.sizes.vocabulary,
        )
        yield from table(
            ("query", "side", "seconds", "calls", "prompt tokens", "cached"),
            [
                (
                    name,
                    side,
                    f"{ran.seconds:.1f}",
                    f"{ran.report.calls:,}",
                    f"{ran.report.prompt_tokens:,}",
                    f"{ran.report.hit_rate:.1%}",
                )
                for name, sides in self.ran.items()
                for side, ran in sides.items()
            ],
        )


def load_model(movies: pa.Table, sizes: Sizes) -> ServedModel:
    """A random network, with a tokenizer trained on the table's text."""
    from relquery.model.load import load
    from relquery.model.networks.random import train_tokenizer

    texts = [str(value) for column in movies.columns for value in column.to_pylist()]
    return load(sizes.model, tokenizer=train_tokenizer(texts, sizes.vocabulary))


def run(model: ServedModel, movies: pa.Table, query: Query) -> dict[str, Ran]:
    """Run the query on all its sides in turn."""

    def serve(side: str, turn: Turn) -> Ran:
        config = EngineConfig(prefix_caching=side != NO_CACHE)
        result, seconds = run_query(
            model,
            {"movies": movies},
            query.sql,
            turn,
            config=config,
            order=ORDERS[side],
            max_tokens=query.max_tokens,
        )
        return Ran(result.report, seconds)

    return alternate({side: partial(serve, side) for side in query.sides})


def figures(ran: dict[str, dict[str, Ran]]) -> Iterator[Figure]:
    """The figures of the queries."""
    sides = ran["filter"]
    yield _ratio("filter_ggr_over_original", sides[ORIGINAL], sides[GGR])
    yield _ratio("filter_ggr_over_no_cache", sides[NO_CACHE], sides[GGR])
    ordered, original = sides[GGR].report, sides[ORIGINAL].report
    note = (
        f"{ordered.cached_tokens:,} of {ordered.prompt_tokens:,} tokens; "
        f"original {original.hit_rate:.1%}"
    )
    goal = GOALS["filter_hit_rate"]
    yield Figure("filter_hit_rate", ordered.hit_rate, goal, note=note, any_size=True)
    sides = ran["projection"]
    yield _ratio("projection_ggr_over_original", sides[ORIGINAL], sides[GGR])


def _ratio(name: str, slow: Ran, fast: Ran) -> Figure:
    note = f"{slow.seconds:.1f} s / {fast.seconds:.1f} s"
    return Figure(name, slow.seconds / fast.seconds, GOALS[name], note=note, any_size=True)
