"""What every schedule keeps, whatever the method, the weight, the bags and the dependencies."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from threading import Timer
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relquery.config import ORDERS, Order
from relquery.errors import ConfigError, UnknownColumnError
from relquery.reordering.cost.measure import lru_hits, measure_hits
from relquery.reordering.cost.meter import Weight
from relquery.reordering.cost.tokens import Encode, tokenize
from relquery.reordering.encode import encode
from relquery.reordering.reorder import reorder
from relquery.reordering.schedule import Schedule
from tests.cases import values
from tests.reordering import reference
from tests.reordering.reference import sent_by
from tests.reordering.strategies import ALIKE, AUTOMATIC, WEIGHTS, letters, rules, tables, words

# All rows begin with `column: `, two of them with `column: ab`: these have more in common.
COLUMN_FIRST = reference.Table(
    [["", "abc", ""], ["abd", "a", "b"], ["abc", "bb", "b"]], classes=[0, 1, 2]
)
TWO_EMPTY = reference.Table(
    [["", "", "ab"], ["ab", None, ""], ["ab", None, ""], ["ab d", "", ""]], classes=[0, 1, 2]
)


def prompts(table: reference.Table, schedule: Schedule, prefix: str) -> list[str]:
    return [
        prefix + "".join(table.line(row, c) for c in fields) for row, fields in sent_by(schedule)
    ]


@given(tables(bags=True), st.sampled_from(ORDERS), st.sampled_from(WEIGHTS), st.data())
def test_a_schedule_sends_every_cell_once_and_its_report_measures_that(
    table: reference.Table, method: Order, weight: Weight, data: st.DataObject
) -> None:
    given_rules = data.draw(rules(table))
    schedule = reorder(table.columns, method, given_rules, table.bags, weight)
    rows, columns = len(table.cells), len(table.classes)
    assert sorted(schedule.rows) == list(range(rows))
    assert schedule.fields.shape == (rows, columns)
    assert all(sorted(fields) == list(range(columns)) for fields in schedule.fields)
    sent, report = sent_by(schedule), schedule.report
    assert report.method == method
    assert report.phc == reference.hits(table, sent)
    assert report.phr == pytest.approx(reference.hit_rate(table, sent))
    assert len(report.depths) == (columns if rows else 0)


@given(tables(bags=True), st.sampled_from(ORDERS), st.sampled_from(["", "Is it?\n"]))
def test_hits_on_tokens_are_those_of_the_prompts_that_are_sent(
    table: reference.Table, method: Order, prefix: str
) -> None:
    schedule = reorder(
        table.columns,
        method,
        bags=table.bags,
        weight=AUTOMATIC,
        tokenizer=letters,
        prefix=prefix,
        cache_tokens=32,
    )
    tokens = tokenize(prompts(table, schedule, prefix), letters)
    assert schedule.report.tokens == measure_hits(tokens, blocks=2)
    assert schedule.report.bill is not None
    assert schedule.report.bill.tokens == len(tokens.ids)


@given(tables(bags=True), st.sampled_from(["original", "fixed", "ggr", "tree"]))
def test_no_solver_beats_the_optimum(table: reference.Table, method: Order) -> None:
    columns, bags, given_rules = table.columns, table.bags, table.dependencies
    report = reorder(columns, method, given_rules, bags, "squared").report
    assert report.phc <= reorder(columns, "ophr", bags=bags, weight="squared").report.phc


TINY = tables(max_rows=5, max_columns=3, bags=True) | tables(
    max_rows=5, max_columns=3, bags=True, of=ALIKE
)


def shared_by(table: reference.Table, encode: Encode, unseen: str) -> reference.Shared:
    """Leading tokens that two prompts share, but for those of a text that is not counted."""
    (nothing,) = encode([unseen])

    def tokens(sent: reference.Row) -> list[int]:
        return list(encode(["".join(table.line(sent[0], c) for c in sent[1])])[0])

    def shared(before: reference.Row, row: reference.Row) -> int:
        both = zip(tokens(before), tokens(row), strict=False)
        common = takewhile(lambda pair: pair[0] == pair[1], both)
        return sum(a not in nothing for a, _ in common)

    return shared


@given(TINY, st.sampled_from([None, words]))
@example(COLUMN_FIRST, None)
@example(TWO_EMPTY, words)
def test_the_optimum_in_tokens_is_that_of_all_orders_of_prompts(
    table: reference.Table, tokenizer: Encode | None
) -> None:
    shared = shared_by(table, tokenizer or letters, "" if tokenizer else "\n")
    best = reference.best_sum(table, shared)
    cases: list[tuple[Order, float]] = [("ophr", 1.0), ("tree", 0.99)]
    for method, least in cases:
        sent = sent_by(reorder(table.columns, method, bags=table.bags, tokenizer=tokenizer))
        hit = sum(
            max(shared(before, row) for before in sent[:i]) for i, row in enumerate(sent) if i
        )
        assert least * best <= hit <= best


@given(tables(bags=True), st.sampled_from(ORDERS), st.sampled_from(WEIGHTS), st.data())
def test_the_same_table_gives_the_same_schedule_in_every_thread(
    table: reference.Table, method: Order, weight: Weight, data: st.DataObject
) -> None:
    given_rules = data.draw(rules(table))

    def solve(_: int) -> Schedule:
        return reorder(table.columns, method, given_rules, table.bags, weight)

    with ThreadPoolExecutor(2) as threads:
        first, second, third = threads.map(solve, range(3))
    for other in (second, third):
        assert np.array_equal(first.rows, other.rows)
        assert np.array_equal(first.fields, other.fields)
        assert first.report.phc == other.report.phc


def test_a_dependency_on_an_unknown_column_or_one_of_a_bag_is_refused() -> None:
    with pytest.raises(UnknownColumnError, match="Did you mean 'title'"):
        reorder(encode({"title": ["a"], "year": ["b"]}), "ggr", [("titel", "year")])
    with pytest.raises(ConfigError, match="'a -> c' names a column of a bag"):
        reorder({"a": ["x"], "b": ["y"], "c": ["z"]}, "ggr", ["a -> c"], [["b", "c"]])


WRONG: list[tuple[Any, dict[str, list[Any]], str]] = values(__file__, "reorder_refused.txt")


def test_wrong_settings_are_refused() -> None:
    table = encode({name: ["x", "y"] for name in "abc"})
    for method, wrong, message in WRONG:
        for options in [{name: one} for name, each in wrong.items() for one in each] or [{}]:
            with pytest.raises(ConfigError, match=message):
                reorder(table, method, **options)


NO_IDS: list[Any] = [
    *(None, 5, "text", [1.5], [-1], [2**31], [2**70], [None], [[1], [2, 3]], [True])
]


def test_a_tokenizer_that_gives_no_ids_or_no_list_per_text_is_refused() -> None:
    for ids in NO_IDS:
        with pytest.raises(ConfigError, match=r"returned .*must return a list of token ids"):
            reorder({"a": ["x", "y"]}, tokenizer=lambda texts, ids=ids: [ids for _ in texts])
    for given_ids in (None, 5, "xy", {"x": [1], "y": [2]}, [[1]]):
        with pytest.raises(ConfigError, match="The tokenizer returned"):
            reorder({"a": ["x", "y"]}, tokenizer=lambda _, given=given_ids: given)


@given(tables(bags=True), st.sampled_from(["squared", "tokens"]))
def test_no_other_order_hits_more_in_a_bounded_cache_than_tree_for_this_cache(
    table: reference.Table, weight: Weight
) -> None:
    rules, bags = table.dependencies, table.bags

    def hit(method: Order, cache: int | None = 32) -> int:
        found = reorder(
            table.columns, method, rules, bags, weight, tokenizer=letters, cache_tokens=cache
        )
        tokens = tokenize(prompts(table, found, ""), letters)
        return int(lru_hits(tokens, 2).sum())

    others = hit("original"), hit("fixed"), hit("ggr"), hit("tree", None)
    assert hit("tree") >= max(others)


@pytest.mark.parametrize("method", ["ggr", pytest.param("tree", marks=pytest.mark.long)])
def test_ctrl_c_ends_a_search_soon(method: Order) -> None:
    rng = np.random.default_rng(0)
    data = {f"c{k}": rng.integers(0, 50, 20_000).astype(str) for k in range(60)}
    columns = encode(pa.table(data))
    pressed: list[float] = []

    def press() -> None:
        pressed.append(time.monotonic())
        signal.raise_signal(signal.SIGINT)

    Timer(1.5 if method == "tree" else 0.1, press).start()
    options: dict[str, Any] = (
        {"seconds": 300.0} if method == "tree" else {"row_depth": None, "threshold": 0}
    )
    with pytest.raises(KeyboardInterrupt):
        reorder(columns, method, **options)
    assert time.monotonic() - pressed[0] < 4  # generous: others may use the processor


def test_the_report_takes_its_seconds_from_the_clock_handed_in() -> None:
    ticks = iter([10.0, 12.5])
    report = reorder(encode({"a": ["x", "y"]}), "ggr", clock=lambda: next(ticks)).report
    assert report.seconds == 2.5
