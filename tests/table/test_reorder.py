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
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relquery.config import ORDERS, Order
from relquery.errors import ConfigError, TableError, UnknownColumnError
from relquery.table.columns import encode
from relquery.table.cost.hits import measure_hits
from relquery.table.cost.tokens import Encode, tokenize
from relquery.table.cost.weigh import Weight
from relquery.table.reorder import Schedule, reorder
from tests.table import reference
from tests.table.strategies import (
    ALIKE,
    AUTOMATIC,
    PAID,
    WEIGHTS,
    bags_of,
    columns_of,
    dependencies_of,
    letters,
    names_of,
    rules,
    tables,
    words,
)

# All rows begin with `column: `, two of them with `column: ab`: these have more in common.
COLUMN_FIRST = reference.Table(
    [["", "abc", ""], ["abd", "a", "b"], ["abc", "bb", "b"]], classes=[0, 1, 2]
)
TWO_EMPTY = reference.Table(
    [["", "", "ab"], ["ab", None, ""], ["ab", None, ""], ["ab d", "", ""]], classes=[0, 1, 2]
)


def sent_by(schedule: Schedule) -> reference.Sent:
    return [
        (int(row), [int(field) for field in fields])
        for row, fields in zip(schedule.rows, schedule.fields, strict=True)
    ]


def prompts(table: reference.Table, schedule: Schedule, prefix: str) -> list[str]:
    names = names_of(table)
    return [
        prefix + "".join(f"{table.label(names, c)}{table.cells[row][c] or ''}\n" for c in fields)
        for row, fields in sent_by(schedule)
    ]


@settings(max_examples=300)
@given(tables(bags=True), st.sampled_from(ORDERS), st.sampled_from(WEIGHTS), st.data())
def test_a_schedule_sends_every_cell_once_and_its_report_measures_that(
    table: reference.Table, method: Order, weight: Weight, data: st.DataObject
) -> None:
    given_rules = data.draw(rules(table))
    schedule = reorder(columns_of(table), method, given_rules, bags_of(table), weight)
    rows, columns = len(table.cells), len(table.classes)
    assert sorted(schedule.rows) == list(range(rows))
    assert schedule.fields.shape == (rows, columns)
    assert all(sorted(fields) == list(range(columns)) for fields in schedule.fields)
    sent, report = sent_by(schedule), schedule.report
    assert report.method == method
    assert report.phc == reference.hits(table, sent)
    assert report.phr == pytest.approx(reference.hit_rate(table, names_of(table), sent))
    assert len(report.depths) == (columns if rows else 0)


@settings(max_examples=60)
@given(tables(bags=True), st.sampled_from(ORDERS), st.sampled_from(["", "Is it?\n"]))
def test_hits_on_tokens_are_those_of_the_prompts_that_are_sent(
    table: reference.Table, method: Order, prefix: str
) -> None:
    schedule = reorder(
        columns_of(table),
        method,
        bags=bags_of(table),
        weight=AUTOMATIC,
        tokenizer=letters,
        prefix=prefix,
        cache_tokens=32,
    )
    tokens = tokenize(prompts(table, schedule, prefix), letters)
    assert schedule.report.tokens == measure_hits(tokens, blocks=2)
    assert schedule.report.bill is not None
    assert schedule.report.bill.tokens == len(tokens.ids)


@settings(max_examples=60)
@given(tables(bags=True), st.sampled_from(["original", "fixed", "ggr", "tree"]))
def test_no_solver_beats_the_optimum(table: reference.Table, method: Order) -> None:
    columns, bags, given_rules = columns_of(table), bags_of(table), dependencies_of(table)
    report = reorder(columns, method, given_rules, bags, "squared").report
    assert report.phc <= reorder(columns, "ophr", bags=bags, weight="squared").report.phc


TINY = tables(max_rows=5, max_columns=3, bags=True) | tables(
    max_rows=5, max_columns=3, bags=True, of=ALIKE
)


@settings(max_examples=30)
@given(TINY)
def test_the_optimum_is_that_of_all_orders(table: reference.Table) -> None:
    report = reorder(columns_of(table), "ophr", bags=bags_of(table), weight="squared").report
    assert report.phc == reference.best_hits(table)


def shared_by(table: reference.Table, encode: Encode, unseen: str) -> reference.Shared:
    """Leading tokens that two prompts share, but for those of a text that is not counted."""
    (nothing,) = encode([unseen])

    def tokens(sent: reference.Row) -> list[int]:
        lines = [
            f"{table.label(names_of(table), c)}{table.cells[sent[0]][c] or ''}\n" for c in sent[1]
        ]
        return encode(["".join(lines)])[0]

    def shared(before: reference.Row, row: reference.Row) -> int:
        common = takewhile(
            lambda pair: pair[0] == pair[1], zip(tokens(before), tokens(row), strict=False)
        )
        return sum(a not in nothing for a, _ in common)

    return shared


@settings(max_examples=60)
@given(TINY, st.sampled_from([None, words]))
@example(COLUMN_FIRST, None)
@example(TWO_EMPTY, words)
def test_the_optimum_in_tokens_is_that_of_all_orders_of_prompts(
    table: reference.Table, tokenizer: Encode | None
) -> None:
    shared = shared_by(table, tokenizer or letters, "" if tokenizer else "\n")
    best = reference.best_sum(table, shared)
    columns, bags = columns_of(table), bags_of(table)
    for method, least in (("ophr", 1.0), ("tree", 0.99)):
        sent = sent_by(reorder(columns, method, bags=bags, tokenizer=tokenizer))
        hit = sum(
            max(shared(before, row) for before in sent[:i]) for i, row in enumerate(sent) if i
        )
        assert least * best <= hit <= best


@settings(max_examples=60)
@given(tables(bags=True), st.sampled_from(ORDERS), st.sampled_from(WEIGHTS), st.data())
def test_the_same_table_gives_the_same_schedule_in_every_thread(
    table: reference.Table, method: Order, weight: Weight, data: st.DataObject
) -> None:
    given_rules = data.draw(rules(table))

    def solve(_: int) -> Schedule:
        return reorder(columns_of(table), method, given_rules, bags_of(table), weight)

    with ThreadPoolExecutor(2) as threads:
        first, second, third = threads.map(solve, range(3))
    for other in (second, third):
        assert np.array_equal(first.rows, other.rows)
        assert np.array_equal(first.fields, other.fields)
        assert first.report.phc == other.report.phc


def test_many_rows_give_the_same_schedule_in_every_thread() -> None:
    rng = np.random.default_rng(0)
    data = {f"c{k}": [str(v) * 4 for v in rng.geometric(0.1, 3000)] for k in range(5)}
    columns = encode(data)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: reorder(columns, bags=[["c3", "c4"]]), range(2))
    assert np.array_equal(first.rows, second.rows)
    assert np.array_equal(first.fields, second.fields)


@pytest.mark.parametrize("method", ["fixed", "ggr"])
def test_columns_that_determine_one_another_are_sent_side_by_side(method: Order) -> None:
    numbers = range(60)
    data = {
        "id": [str(i % 7) for i in numbers],
        "text": [f"unique {i}" for i in numbers],
        "group": [str(i % 4) for i in numbers],
        "name": [f"name of {i % 7}" for i in numbers],
    }
    options = {"threshold": 10} if method == "ggr" else {}
    schedule = reorder(encode(data), method, [("id", "name")], **options)
    for fields in schedule.fields.tolist():
        assert abs(fields.index(0) - fields.index(3)) == 1


def test_a_bounded_cache_chooses_among_the_schedules_found() -> None:
    rng = np.random.default_rng(0)
    data = {f"c{k}": [f"{v} " * 9 for v in rng.integers(0, 4 + 9 * k, 200)] for k in range(4)}
    small = reorder(encode(data), cache_tokens=512).report.tokens
    plain = reorder(encode(data), "fixed", cache_tokens=512).report.tokens
    assert small is not None
    assert plain is not None
    assert small.lru is not None
    assert plain.lru is not None
    assert small.blocks == 512 // 16
    assert small.lru >= plain.lru


def test_dependencies_found_are_reported_after_those_given() -> None:
    data = {
        "city": [f"city {i % 9}" for i in range(200)],
        "state": [f"state {i % 3}" for i in range(200)],
        "id": [str(i % 20) for i in range(200)],
        "name": [f"name {i % 20}" for i in range(200)],
    }
    report = reorder(encode(data), "ggr", ["id -> name", "discover"]).report
    written = list(map(str, report.dependencies))
    assert written[0] == "id -> name"
    assert "city -> state" in written
    assert "name -> id" not in written  # the user spoke about these two


def test_an_unknown_column_in_a_dependency_names_the_nearest() -> None:
    with pytest.raises(UnknownColumnError, match="Did you mean 'title'"):
        reorder(encode({"title": ["a"], "year": ["b"]}), "ggr", [("titel", "year")])


def test_a_dependency_on_a_column_of_a_bag_is_refused() -> None:
    with pytest.raises(ConfigError, match="'a -> c' names a column of a bag"):
        reorder({"a": ["x"], "b": ["y"], "c": ["z"]}, "ggr", ["a -> c"], [["b", "c"]])


@pytest.mark.parametrize("table", [["a", "b"], "a table", 7, None, {1, 2}, object()])
def test_what_is_no_table_is_refused(table: object) -> None:
    with pytest.raises(TableError, match="is not a table"):
        reorder(table)


@pytest.mark.parametrize(
    "column",
    [7, None, (text for text in "ab"), object()],
    ids=["int", "None", "generator", "object"],
)
def test_a_column_that_is_no_sequence_is_refused_by_name(column: object) -> None:
    with pytest.raises(TableError, match="'a'"):
        reorder({"a": column})


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("gggr", {}, "Did you mean 'ggr'"),
        ("ggr", {"row_dept": 3}, "Did you mean 'row_depth'"),
        ("ggr", {"row_depth": -1}, "must be a number of at least 0"),
        ("fixed", {"row_depth": 3}, "of reorder with fixed is not known"),
        ("tree", {"second": 3}, "Did you mean 'seconds'"),
        ("tree", {"weights": "tokens"}, "Did you mean 'weight'"),
        ("tree", {"weight": "token"}, "Did you mean 'tokens'"),
        ("tree", {"cache_tokens": 15}, "less than one block of 16"),
        ("tree", {"requests_per_minute": 0}, "must be a number above 0"),
        ("tree", {"requests_per_minute": float("nan")}, "must be a number above 0"),
        ("tree", {"bags": [["a", "b"], ["b", "c"]]}, "Column b is in two bags"),
        ("tree", {"dependencies": "a -> b -> c"}, "more than one arrow"),
        (None, {}, "method None is not known"),
        ("tree", {"weight": None}, "weight None is not known"),
        ("tree", {"weight": 5}, "weight 5 is not known"),
        ("tree", {"seconds": "1"}, "must be a number of at least 0"),
        ("tree", {"requests_per_minute": "60"}, "must be a number above 0"),
        ("tree", {"cache_tokens": float("nan")}, "must be a whole number"),
        ("tree", {"cache_tokens": 100.5}, "must be a whole number"),
        ("tree", {"cache_tokens": 10**30}, "must be a whole number"),
        ("tree", {"cache_tokens": "4096"}, "must be a whole number"),
        ("tree", {"prefix": None}, "prefix is None; it must be text"),
        ("tree", {"prefix": b"x"}, "prefix is b'x'; it must be text"),
        ("tree", {"tokenizer": "demo"}, r"Use load_tokenizer\('demo'\)"),
        ("tree", {"dependencies": None}, "dependencies is None"),
        ("tree", {"dependencies": 5}, "dependencies is 5"),
        ("tree", {"dependencies": b"a -> b"}, "dependencies is b'a -> b'"),
        ("tree", {"dependencies": ["a -> b", None]}, "'None' is not text or a list of names"),
        ("tree", {"bags": None}, "bags is None; .* each bag a list of column names"),
        ("tree", {"bags": [[0, 1]]}, "each bag a list of column names"),
        ("tree", {"bags": ["a", "b"]}, "each bag a list of column names"),
        ("tree", {"bags": ["ab"]}, "each bag a list of column names"),
    ],
)
def test_wrong_settings_are_refused(
    method: Order, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        reorder(encode({"a": ["x", "y"], "b": ["x", "y"], "c": ["x", "y"]}), method, **settings)


@pytest.mark.parametrize(
    "ids",
    [None, 5, "text", [1.5], [-1], [2**31], [2**70], [None], [[1], [2, 3]], [True]],
    ids=str,
)
def test_a_tokenizer_that_gives_no_ids_is_refused(ids: Any) -> None:
    with pytest.raises(ConfigError, match=r"returned .*must return a list of token ids"):
        reorder({"a": ["x", "y"]}, tokenizer=lambda texts: [ids for _ in texts])


@pytest.mark.parametrize("given", [None, 5, "xy", {"x": [1], "y": [2]}, [[1]]], ids=str)
def test_a_tokenizer_that_gives_no_list_per_text_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="The tokenizer returned"):
        reorder({"a": ["x", "y"]}, tokenizer=lambda _: given)


@settings(max_examples=60)
@given(tables(bags=True), st.sampled_from(["gpt-4o-mini", AUTOMATIC, PAID]))
def test_no_other_method_costs_less_than_tree_under_a_price(
    table: reference.Table, price: Weight
) -> None:
    def usd(method: Order) -> float:
        given_rules = dependencies_of(table)
        schedule = reorder(columns_of(table), method, given_rules, bags_of(table), price)
        assert schedule.report.bill is not None
        return schedule.report.bill.usd

    assert usd("tree") <= min(usd("original"), usd("fixed"), usd("ggr")) + 1e-12


@settings(max_examples=60)
@given(tables(bags=True), st.sampled_from(["squared", "tokens"]))
def test_no_other_method_hits_more_than_tree_in_a_bounded_cache(
    table: reference.Table, weight: Weight
) -> None:
    def hit(method: Order) -> int:
        given_rules, bags = dependencies_of(table), bags_of(table)
        schedule = reorder(
            columns_of(table), method, given_rules, bags, weight, tokenizer=letters, cache_tokens=32
        )
        assert schedule.report.tokens is not None
        assert schedule.report.tokens.lru is not None
        return schedule.report.tokens.lru

    assert hit("tree") >= max(hit("original"), hit("fixed"), hit("ggr"))


@pytest.mark.parametrize("tokenizer", [None, letters])
def test_values_that_begin_alike_count_where_tokens_are_saved(tokenizer: Encode | None) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        data = {name: [f"{v:06}" for v in rng.integers(0, 3000, 30)] for name in "abc"}
        tree, fixed = (
            reorder(data, method, weight="tokens", tokenizer=tokenizer).report
            for method in ("tree", "fixed")
        )
        assert tree.phr >= fixed.phr
        assert tree.phc >= fixed.phc
        if tree.tokens and fixed.tokens:
            assert tree.tokens.unlimited >= fixed.tokens.unlimited


@pytest.mark.parametrize("method", ["tree", "ggr"])
def test_ctrl_c_ends_a_search_soon(method: Order) -> None:
    rng = np.random.default_rng(0)
    data = {f"c{k}": rng.integers(0, 50, 20_000).astype(str) for k in range(60)}
    columns = encode(pa.table(data))
    reorder(pa.table(data).slice(0, 4), method)  # compiles
    pressed: list[float] = []

    def press() -> None:
        pressed.append(time.monotonic())
        signal.raise_signal(signal.SIGINT)

    Timer(1.5 if method == "tree" else 0.1, press).start()
    options = {"seconds": 300.0} if method == "tree" else {"row_depth": None, "threshold": 0}
    with pytest.raises(KeyboardInterrupt):
        reorder(columns, method, **options)
    assert time.monotonic() - pressed[0] < 4  # generous: others may use the processor


def test_the_report_takes_its_seconds_from_the_clock_handed_in() -> None:
    ticks = iter([10.0, 12.5])
    report = reorder(encode({"a": ["x", "y"]}), "ggr", clock=lambda: next(ticks)).report
    assert report.seconds == 2.5
