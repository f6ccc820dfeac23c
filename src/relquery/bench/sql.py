"""`relquery bench sql`: LLM queries over real tables, and the engine parts that they rest on."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from relquery.backends.embedded import EmbeddedBackend
from relquery.bench.harness import Benchmark, Figure, Say, Settings
from relquery.config import EngineConfig, Order
from relquery.connection import connect
from relquery.engine.request import Request
from relquery.errors import PartialResultWarning
from relquery.report import Report
from relquery.table.columns import encode
from relquery.table.reorder import reorder

if TYPE_CHECKING:
    from relquery.model.load import LoadedModel

MODEL = "random:layers=8,hidden=288,heads=4,ffn=1152"
VOCABULARY = 4096

FILTER = """
    SELECT movietitle FROM movies WHERE LLM('Given the following fields, answer in one word,
    ''Yes'' or ''No'', whether the movie would be suitable for kids. Answer with ONLY ''Yes'' or
    ''No''.', movies.*) = 'Yes'"""
PROJECTION = """
    SELECT LLM('Given information including movie descriptions and critic reviews, summarize the
    good qualities in this movie that led to a favorable rating.', reviewcontent, movieinfo)
    FROM movies"""
"""Paper 000, appendices A and C: its filter (T1) and projection (T2) on Movies."""


def run(settings: Settings, say: Say) -> Iterator[Figure]:
    """All figures of the benchmark."""
    from relquery.model.stock import set_threads

    set_threads(settings.threads)
    movies = settings.data / "movies" / "movies.parquet"
    beer = settings.data / "beer" / "beer.csv"
    yield from (
        _ggr_on_beer(pa_csv.read_csv(beer))
        if beer.exists()
        else [Figure("ggr_beer_seconds", None, 1.0, at_least=False, note=f"{beer} is absent")]
    )
    table = (
        pq.read_table(movies).slice(0, 40 if settings.quick else 2000) if movies.exists() else None
    )
    model = _model(table, say)
    yield from _engine(model, settings, say)
    if table is not None:
        yield from _queries(model, table, say)
    else:
        for name, goal in _QUERY_GOALS.items():
            yield Figure(name, None, goal, note=f"{movies} is absent")


BENCHMARK = Benchmark("sql", "LLM filter and projection on Movies; prefill, decode, solver", run)

_QUERY_GOALS = {
    "filter_ggr_over_original": 3.4,
    "filter_ggr_over_no_cache": 4.0,
    "filter_hit_rate": 0.8,
    "projection_ggr_over_original": 1.5,
}


def _model(table: pa.Table | None, say: Say) -> LoadedModel:
    from relquery.model.load import load
    from relquery.model.random import train_tokenizer
    from relquery.model.stock import parameters

    columns = table.columns if table is not None else []
    texts = [str(value) for column in columns for value in column.to_pylist()]
    model = load(MODEL, tokenizer=train_tokenizer(texts, VOCABULARY))
    say(f"{MODEL}: {parameters(model.network) / 1e6:.1f} M parameters, embeddings aside")
    return model


def _ggr_on_beer(table: pa.Table) -> Iterator[Figure]:
    columns = encode(table)
    dependencies = [("beer/beerId", "beer/name")]
    reorder(columns, "ggr", dependencies)  # compiles
    report = reorder(columns, "ggr", dependencies).report
    note = f"{table.num_rows} rows x {table.num_columns} columns, PHR {report.phr:.1%}"
    yield Figure("ggr_beer_seconds", report.seconds, 1.0, at_least=False, note=note)


@dataclass(frozen=True, slots=True)
class _Side:
    """One way to run a query: the order of rows and fields, and whether prefixes are cached."""

    name: str
    order: Order
    prefix_caching: bool = True


_GGR, _ORIGINAL = _Side("ggr", "ggr"), _Side("original", "original")
_NO_CACHE = _Side("no cache", "original", prefix_caching=False)


def _queries(model: LoadedModel, table: pa.Table, say: Say) -> Iterator[Figure]:
    reports = {}
    for side in (_GGR, _ORIGINAL, _NO_CACHE):
        reports[side] = _query(model, table, side, FILTER, 2)
        say(f"filter, {side.name}: {_summary(reports[side])}")
    ggr, original, none = (reports[side] for side in (_GGR, _ORIGINAL, _NO_CACHE))
    yield _ratio("filter_ggr_over_original", original.seconds, ggr.seconds)
    yield _ratio("filter_ggr_over_no_cache", none.seconds, ggr.seconds)
    note = f"{ggr.cached_tokens} of {ggr.prompt_tokens} tokens; original {original.hit_rate:.1%}"
    yield Figure("filter_hit_rate", ggr.hit_rate, _QUERY_GOALS["filter_hit_rate"], note=note)
    for side in (_GGR, _ORIGINAL):
        reports[side] = _query(model, table, side, PROJECTION, 16)
        say(f"projection, {side.name}: {_summary(reports[side])}")
    yield _ratio("projection_ggr_over_original", reports[_ORIGINAL].seconds, reports[_GGR].seconds)


def _query(model: LoadedModel, table: pa.Table, side: _Side, sql: str, tokens: int) -> Report:
    """Run a query on a fresh engine, after a warm-up on a few rows whose cache is then dropped."""
    config = EngineConfig(prefix_caching=side.prefix_caching)
    with warnings.catch_warnings():  # a random model's answers are cut by max_tokens
        warnings.simplefilter("ignore", PartialResultWarning)
        for rows in (table.slice(0, 8), table):
            with connect(EmbeddedBackend(model, config), order=side.order, ledger=None) as con:
                con.register("movies", rows)
                report = con.sql(sql, max_tokens=tokens).report
    return report


def _summary(report: Report) -> str:
    return (
        f"{report.seconds:.1f} s, {report.calls} calls, {report.prompt_tokens} prompt tokens, "
        f"{report.hit_rate:.1%} cached"
    )


def _ratio(name: str, slow: float, fast: float) -> Figure:
    return Figure(name, slow / fast, _QUERY_GOALS[name], note=f"{slow:.1f} s / {fast:.1f} s")


def _engine(model: LoadedModel, settings: Settings, say: Say) -> Iterator[Figure]:
    rng = np.random.default_rng(settings.seed)
    vocabulary = len(model.tokenizer)
    requests = 3 if settings.quick else 16
    tokens = rng.integers(1, vocabulary, (requests, 1024))
    yield _prefill(model, tokens, repeats=3)
    steps = 12 if settings.quick else 48
    prompts = rng.integers(1, vocabulary, (64, 128))
    alone, many = (_decode(model, prompts[:batch], steps) for batch in (1, 64))
    note = f"{many:.0f} / {alone:.0f} tokens/s after prompts of 128 tokens"
    yield Figure("decode_64_over_1", many / alone, 5.0, note=note)
    shared = np.broadcast_to(rng.integers(1, vocabulary, 1024), (64, 1024))
    prompts = np.hstack((shared, rng.integers(1, vocabulary, (64, 64 - steps // 2))))
    on, off = (_decode(model, prompts, steps, share) for share in (True, False))
    note = f"{on:.0f} / {off:.0f} tokens/s, 1,024 of about 1,088 context tokens shared"
    yield Figure("decode_shared_over_unshared", on / off, 3.0, note=note)


def _prefill(model: LoadedModel, tokens: np.ndarray, repeats: int) -> Figure:
    from relquery.model.stock import prefill

    ours, stock = [], []
    prefill(model.network, tokens[:2])
    _prefill_seconds(model, tokens[:2])
    for _ in range(repeats):
        start = time.perf_counter()
        prefill(model.network, tokens)
        stock.append(time.perf_counter() - start)
        ours.append(_prefill_seconds(model, tokens))
    speed, stock_speed = tokens.size / min(ours), tokens.size / min(stock)
    note = f"{speed:.0f} / {stock_speed:.0f} tokens/s, {tokens.shape[0]} x {tokens.shape[1]}"
    return Figure("prefill_over_transformers", speed / stock_speed, 0.9, note=note)


def _prefill_seconds(model: LoadedModel, tokens: np.ndarray) -> float:
    engine = EmbeddedBackend(model, EngineConfig(prefix_caching=False)).engine
    start = time.perf_counter()
    for index, prompt in enumerate(tokens.astype(np.int32)):
        engine.submit(Request(index, prompt, max_tokens=1))
    for _ in engine.run():
        pass
    return time.perf_counter() - start


def _decode(model: LoadedModel, prompts: np.ndarray, steps: int, share: bool = True) -> float:
    """Tokens per second of `steps` decode steps, all prompts being computed before."""
    config = EngineConfig(cache_tokens=131_072, segment_sharing=share)
    engine = EmbeddedBackend(model, config).engine
    for index, prompt in enumerate(prompts.astype(np.int32)):
        engine.submit(Request(index, prompt, max_tokens=steps + 64))
    while engine.waiting or not all(request.decoding for request in engine.running):
        engine.step()
    engine.step()
    start = time.perf_counter()
    for _ in range(steps):
        engine.step()
    return len(prompts) * steps / (time.perf_counter() - start)
