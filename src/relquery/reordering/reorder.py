"""Chooses the order of rows, and of fields in each row, so that prompts share prefixes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from operator import index
from typing import Any, SupportsIndex

import numpy as np

from relquery.arrays import Bools, Int32s, Int64s
from relquery.config import ORDERS, Order
from relquery.errors import ConfigError, unknown
from relquery.reordering.cost.measure import Fields, hits, phc
from relquery.reordering.cost.meter import BLOCK_SIZE, Meter, Sent, Weight, beginnings_of, weigh
from relquery.reordering.cost.tokens import as_encode
from relquery.reordering.dependencies import (
    Dependency,
    check_names,
    implied,
    parse_dependency,
)
from relquery.reordering.encode import Columns, encode
from relquery.reordering.items import Items, itemize
from relquery.reordering.prompts.prompts import TableSource
from relquery.reordering.schedule import Schedule, ScheduleReport
from relquery.reordering.solvers.ophr import ophr
from relquery.reordering.solvers.polish import polish
from relquery.reordering.solvers.problem import (
    NO_LIMIT,
    PAPER_LIMITS,
    GroupLimits,
    Problem,
    as_in_paper,
    fixed,
    original,
    pose,
    side_by_side,
)
from relquery.reordering.solvers.tree import tree

Given = str | Sequence[str | Sequence[str] | Dependency]

_ARGUMENTS = (
    "method", "dependencies", "bags", "weight", "tokenizer", "prefix", "cache_tokens",
    "requests_per_minute",
)  # fmt: skip
SHARE = 0.0025  # share of the predicted inference time that `tree` may search
CHARACTERS_PER_SECOND = 40_000  # predicted reading speed of inference
LEAST_SECONDS, MOST_SECONDS = 0.05, 3.0
MOST_CELLS_POLISHED = 50_000
POLISH_SECONDS = 1.0  # default minimum: a lattice of 100 rows needs this long to help


def reorder(
    table: Any,
    method: Order = "tree",
    dependencies: Given = (),
    bags: Sequence[Sequence[str]] = (),
    weight: Weight = "tokens",
    *,
    tokenizer: Any = None,
    prefix: str = "",
    cache_tokens: int | None = None,
    requests_per_minute: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
    **options: float | None,
) -> Schedule:
    """Order the rows of a table, and the fields of each row, so that prompts share prefixes.

    table: an Arrow, pandas or polars table, or a mapping from names to columns.
    method: `tree` (searches; under the weight never below `ggr`, `fixed` and `original`), `ggr`
        (paper 000), `ophr` (the optimum, see below), `fixed` (one order of columns, by statistics)
        or `original`.
    dependencies: which columns determine which: ("id", "name") determine each other, "city ->
        state", "street, city -> zip". `tree` needs none: it finds columns that determine each
        other.
    bags: groups of columns with interchangeable values, such as retrieved passages.
    weight: what a hit is worth: "tokens" saved (characters without a tokenizer), "squared"
        characters (PHC, paper 000), or the name of a price (see relquery.prices) to pay
        as little as possible. `ggr` forms its groups by squared characters, as in the paper.
    tokenizer: of transformers, tokenizers or tiktoken, or a function that returns the token ids of
        each text in a list. Hits are then counted in tokens of whole prompts: `prefix`, followed by
        one line "column: value" per field. With a price or a cache size but no tokenizer, pieces
        of words stand in for tokens.
    cache_tokens: size of the cache; selects the order with the most hits under LRU.
    requests_per_minute: how fast requests are sent, for prices that depend on it.
    options: for `ggr`: `row_depth` 4, `column_depth` 2, `threshold` 100,000. None removes the limit
        on a depth; a threshold of None means that only the depths count. For `tree`: `seconds`, a
        rough limit on the search (default: a small share of the predicted inference time), and
        `polishing`, the share of that time for what follows for small tables (default: `seconds`
        if given, else at least a second). One pass of each start comes on top, which takes several
        seconds for a million rows even if `seconds` is 0.

    `ophr` is the proven optimum of PHC for "squared". For "tokens", and for a price, it is the
    optimum of what neighbours share: whole items "column: value", then the start of the next item,
    in tokens of each item tokenised by itself, or in characters without the line break. Items of
    two columns share at most their labels. `ophr` ignores `cache_tokens` and the other terms of a
    price, so another order may have a smaller bill.

    Raises UnknownColumnError for a missing column, TableError for anything that is not a table,
    ConfigError for settings that are unknown, out of range or contradictory, and for tables too
    large for `ophr`.
    """
    if method not in ORDERS:
        raise ConfigError(unknown("method", method, ORDERS))
    settings = _settings(method, options)
    _check(prefix, cache_tokens, requests_per_minute)
    encode_texts = None if tokenizer is None else as_encode(tokenizer)
    columns = table if isinstance(table, Columns) else encode(table)
    start = clock()
    items = itemize(columns, bags)
    known = _dependencies(columns, items, dependencies)
    weighting = weigh(items, weight, encode_texts, prefix)
    meter = Meter(items, weighting, encode_texts, prefix, cache_tokens, requests_per_minute)
    rows, fields = meter.best(_solve(method, items, known, meter, settings))
    seconds = clock() - start
    shared = hits(items, rows, fields)
    tokens, charged = meter.read(rows, fields)
    report = ScheduleReport(
        method=method,
        weight=weighting.name,
        seconds=seconds,
        phc=phc(items, rows, fields),
        phr=shared.rate,
        depths=shared.depths,
        dependencies=known,
        tokens=tokens,
        bill=charged,
    )
    source = TableSource(items, encode_texts, weighting.price, requests_per_minute)
    return Schedule(rows, fields, report, source)


def _solve(
    method: Order,
    items: Items,
    known: Sequence[Dependency],
    meter: Meter,
    settings: dict[str, float | None],
) -> list[Sent]:
    """Schedules to choose from."""
    weighting = meter.weighting
    counts_characters = weighting.pieces is None and not meter.prices
    if method == "tree" and len(items.slots) == 1 and counts_characters:
        # No search finds a better order of one column than that of its texts.
        rows = np.argsort(items.rank[items.slots[0]], kind="stable")
        return [(rows, np.zeros((len(rows), 1), np.int16))]
    problem = pose(items.slots, items.bags, weighting.weights, *_rules(items, known))
    if items.slots.size == 0 or method == "original":
        orders = [original(problem)]
    elif method == "fixed":
        orders = side_by_side([partial(fixed, problem)], problem.stopped, items.slots.size)
    elif method == "ggr":
        limits = [NO_LIMIT if value is None else int(value) for value in settings.values()]
        solve = partial(as_in_paper, problem, items, GroupLimits(*limits))
        orders = side_by_side([solve], problem.stopped, items.slots.size)
    elif method == "ophr":
        orders = [ophr(problem, beginnings_of(items, weighting))]
    else:
        return _search(items, problem, meter, *_times(items, **settings))
    return [_by_position(rows, fields) for rows, fields in orders]


def _search(
    items: Items, problem: Problem, meter: Meter, seconds: float, polishing: float
) -> list[Sent]:
    """The best schedule that `tree` finds and, for a small table, a polished one.

    For a bounded cache also what would be best in one without a bound, so that the result is never
    below it. polishing: seconds for polishing.
    """
    orders = [
        _by_position(*each) for each in tree(items, problem, meter.weighting.objective, seconds)
    ]
    best = meter.best(orders)
    if meter.weighting.price is not None:
        return [best]
    kept = [best]
    if meter.cache_tokens is not None:
        best = replace(meter, cache_tokens=None).best(orders)
        kept.append(best)
    if items.slots.size > MOST_CELLS_POLISHED:
        return kept
    task = partial(
        polish,
        items.slots,
        meter.weighting.weights,
        beginnings_of(items, meter.weighting),
        best,
        polishing,
        problem.stopped,
    )
    (better,) = side_by_side([task], problem.stopped, items.slots.size)
    return kept if better is None else [*kept, _by_position(*better)]


def _by_position(rows: Int64s, by_row: Int32s) -> tuple[Int64s, Fields]:
    fields: Fields = np.ascontiguousarray(by_row[rows])
    return rows, fields.astype(np.int16) if fields.shape[1] < 2**15 else fields


def _times(items: Items, seconds: float | None, polishing: float | None) -> tuple[float, float]:
    """Seconds for the search and for polishing; see `reorder`."""
    predicted = float(items.characters[items.slots].sum()) / CHARACTERS_PER_SECOND
    search = float(np.clip(SHARE * predicted, LEAST_SECONDS, MOST_SECONDS))
    polish = max(search, POLISH_SECONDS)
    if seconds is not None:
        search = polish = seconds
    return search, polish if polishing is None else polishing * predicted


def _settings(method: Order, options: dict[str, float | None]) -> dict[str, float | None]:
    """The options of a method, with defaults filled in."""
    known: dict[str, float | None] = {}
    if method == "ggr":
        known = dict(PAPER_LIMITS._asdict())
    elif method == "tree":
        known = {"seconds": None, "polishing": None}
    for name, value in options.items():
        if name not in known:
            raise ConfigError(
                unknown("option", name, [*known, *_ARGUMENTS], of=f"reorder with {method}")
            )
        if value is not None and not (isinstance(value, Real) and 0 <= value < NO_LIMIT):
            raise ConfigError(f"{name} is {value!r}; it must be a number of at least 0.")
    return {**known, **options}


def _check(prefix: object, cache_tokens: object, requests_per_minute: Any) -> None:
    if not isinstance(prefix, str):
        raise ConfigError(f"prefix is {prefix!r}; it must be text.")
    if cache_tokens is not None:
        tokens = index(cache_tokens) if isinstance(cache_tokens, SupportsIndex) else NO_LIMIT
        if tokens >= NO_LIMIT:
            raise ConfigError(f"cache_tokens is {cache_tokens!r}; it must be a whole number.")
        if tokens < BLOCK_SIZE:
            raise ConfigError(
                f"cache_tokens is {tokens}, less than one block of {BLOCK_SIZE} tokens."
            )
    rate = requests_per_minute
    if rate is not None and not (isinstance(rate, Real) and float(rate) > 0):
        raise ConfigError(f"requests_per_minute is {rate!r}; it must be a number above 0.")


def _dependencies(columns: Columns, items: Items, given: Given) -> tuple[Dependency, ...]:
    """The dependencies that the user states."""
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        raise ConfigError(
            f"dependencies is {given!r}. Give 'a -> b', or a list of such texts, of lists of names "
            "and of Dependency."
        )
    written = [given] if isinstance(given, str) else list(given)
    known = tuple(dict.fromkeys(rule for each in written for rule in parse_dependency(each)))
    check_names(columns.names, (name for rule in known for name in rule.names))
    loose = {columns.names[c] for c in range(len(columns.names)) if items.in_bag(c)}
    for rule in known:
        if not loose.isdisjoint(rule.names):
            raise ConfigError(
                f"Dependency '{rule}' names a column of a bag, but values in a bag are "
                "interchangeable. Remove the column from the bag or the dependency."
            )
    return known


def _rules(items: Items, known: Sequence[Dependency]) -> tuple[Bools, Int32s]:
    """(m, m): which column determines which; (p, 3): which two determine a third."""
    place = {name: i for i, name in reversed(list(enumerate(items.names)))}
    pairs = [
        [*(place[name] for name in rule.determinants), place[dependent]]
        for rule in known
        if len(rule.determinants) == 2
        for dependent in rule.dependents
    ]
    return implied(items.names, known), np.array(pairs, np.int32).reshape(-1, 3)
