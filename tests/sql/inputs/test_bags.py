"""BAG(list) and passages(...): each item is a field of its own, in any order, and none is lost."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from relquery.config import Order
from relquery.connection import Connection, connect
from relquery.errors import PartialResultWarning, QueryError
from relquery.prompt import Prompt, Reuse
from tests.sql.conftest import SETUP, opened, upper_or_length
from tests.sql.fakes import FakeBackend, text_of

ORDERS: list[Order] = ["original", "fixed", "ggr", "tree"]
KINDS = ["text", "number"]
WORDS = [f"passage {i} about {'xyz'[i % 3] * (i + 3)}" for i in range(9)]


def sent(prompt: Prompt) -> list[tuple[str, Any]]:
    """The fields of a prompt in their order; names repeat."""
    text = "".join(map(text_of, prompt[1:]))
    pairs: list[tuple[str, Any]] = json.loads(
        text.split("data:\n")[-1], object_pairs_hook=lambda pairs: pairs
    )
    return pairs


def made_up(rows: int, seed: int, kind: str) -> pa.Table:
    draw = random.Random(seed)
    bags = []
    for _ in range(rows):
        size = draw.choice([None, 0, 1, 3, 3, 3, 5])
        bag = None if size is None else draw.choices([*WORDS, None, ""], k=size)
        bags.append(bag)
    ids = [draw.randrange(rows) for _ in range(rows)]
    lists = pa.array(bags, pa.list_(pa.string()))
    if kind == "number":
        lists = pa.array(
            [None if b is None else [None if x is None else len(x) / 4 for x in b] for b in bags]
        )
    return pa.table({"id": ids, "genre": [WORDS[i % 2] for i in ids], "bag": lists})


@pytest.mark.parametrize(
    ("order", "kind", "rows"),
    [("original", "text", 40), ("fixed", "number", 20), ("ggr", "text", 20), ("tree", "number", 40)]
    + [pytest.param(*one, 40, marks=pytest.mark.long) for one in product(ORDERS, KINDS)],
)
def test_every_item_of_every_row_is_sent_once(
    con: Connection, backend: FakeBackend, order: Order, kind: str, rows: int
) -> None:
    table = made_up(rows, len(order), kind)
    con.register("t", table)
    con.sql("SELECT LLM('q', BAG(bag), genre, id) FROM t", order=order)
    expected = Counter(
        (row["id"], row["genre"], tuple(row["bag"] or ())) for row in table.to_pylist()
    )
    found = Counter[tuple[int, str, tuple[str, ...]]]()
    for asked in backend.asked:
        pairs = sent(asked.prompt)
        (number,) = (value for name, value in pairs if name == "id")
        (genre,) = (value for name, value in pairs if name == "genre")
        items = [value for name, value in pairs if name == "bag"]
        assert len(pairs) == len(items) + 2
        if order == "original":
            assert [name for name, _ in pairs] == ["bag"] * len(items) + ["genre", "id"]
            assert (number, genre, tuple(items)) in expected, "a bag's items stand as given"
        found[number, genre, tuple(sorted(map(str, items)))] += 1
    distinct = Counter((n, g, tuple(sorted(map(str, b)))) for n, g, b in expected)
    assert found == distinct


def test_rows_with_the_same_passages_in_another_order_share_them(
    con: Connection, backend: FakeBackend
) -> None:
    rows = [[WORDS[(i + j) % 3] for j in range(3)] for i in range(30)]
    con.register("t", pa.table({"id": [*range(30)], "bag": rows}))
    found = con.sql("SELECT LLM('q', id, BAG(bag)) FROM t")
    firsts = {tuple(value for name, value in sent(asked.prompt)[:3]) for asked in backend.asked}
    assert len(backend.asked) == 30
    assert len(firsts) == 1, "all begin with the three passages in one order"
    assert found.report.stages[0].phr > 0.9


def test_bags_of_the_same_items_are_asked_about_once(con: Connection, backend: FakeBackend) -> None:
    con.register(
        "t", pa.table({"x": [1, 1, 1, 1], "b": [["p", "q"], ["q", "p"], ["p"], ["q", "p", "p"]]})
    )
    for order in ORDERS:
        backend.asked.clear()
        answers = con.sql("SELECT LLM('up', BAG(b), x) FROM t", order=order).fetchall()
        assert len(backend.asked) == 3
        assert answers[0] == answers[1]


def test_passages_are_named_passage_unless_they_have_a_name(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql("CREATE OR REPLACE TABLE docs AS SELECT unnest(['red fish', 'blue fish']) AS t")
    con.sql("SELECT LLM('q', passages('docs', 'fish'), id) FROM films WHERE id = 1")
    con.sql("SELECT LLM('q', source := passages('docs', 'fish'), id) FROM films WHERE id = 1")
    first, second = (sorted(sent(asked.prompt), key=str) for asked in backend.asked)
    assert first == [("id", 1), ("passage", "blue fish"), ("passage", "red fish")]
    assert second == [("id", 1), ("source", "blue fish"), ("source", "red fish")]


def test_bags_work_in_subqueries_and_over_aggregates(con: Connection) -> None:
    for query in (
        "SELECT a FROM (SELECT LLM('up', BAG(tags)) AS a, tags FROM films) WHERE len(tags) = 1",
        "WITH w AS (SELECT tags AS x FROM films WHERE len(tags) = 1) "
        "SELECT LLM('up', BAG(x)) FROM w",
        "SELECT LLM('up', BAG(list(title))) FROM (SELECT tags[1] AS title FROM films "
        "WHERE len(tags) = 1) GROUP BY title",
    ):
        assert sorted(answer for (answer,) in con.sql(query).fetchall()) == ["PARIS", "SAND"]


def test_a_list_and_its_bag_can_be_fields_of_one_call(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql("SELECT LLM('q', tags, BAG(tags)) FROM films WHERE id = 1")
    values = [value for _, value in sent(backend.asked[0].prompt)]
    assert sorted(map(str, values)) == ["['space', 'ship']", "ship", "space"]


def test_empty_bags_and_nothing_else_is_a_prompt_without_fields(
    con: Connection, backend: FakeBackend
) -> None:
    con.sql("SELECT LLM('q', BAG(tags)) FROM films WHERE id IN (3, 5)")
    assert [sent(asked.prompt) for asked in backend.asked] == [[]]


def test_the_items_of_a_row_error_are_a_list(con: Connection) -> None:
    with pytest.warns(PartialResultWarning):
        result = con.sql("SELECT LLM('q', BAG(tags), id)::INT FROM films WHERE id = 1")
    (error,) = result.errors
    assert json.loads(str(error.inputs["tags"])) == ["space", "ship"]


def test_each_passage_of_a_module_is_a_span_of_its_own() -> None:
    backend = FakeBackend(upper_or_length, has_modules=True)
    with opened(backend) as con:
        for order in ORDERS:
            query = "SELECT LLM('q', MODULE(BAG(tags)), id) FROM films WHERE id IN (1, 2)"
            con.sql(query, order=order)
    for asked in backend.asked:
        tags = {1: ["space", "ship"], 2: ["paris"]}[asked.fields["id"]]
        spans = [text_of(span) for span in asked.prompt if span.reuse is Reuse.INDEPENDENT]
        assert spans == [f'"tags": "{tag}"' for tag in tags]
        assert json.loads("".join(map(text_of, asked.prompt[1:])).split("data:\n")[-1])


def test_bags_elsewhere_are_refused_before_a_call(con: Connection, backend: FakeBackend) -> None:
    for query, error in (
        ("SELECT LLM('q', BAG(title)) FROM films", r"title\) is of type VARCHAR.*must be a list"),
        ("SELECT AI_AGG('q', BAG(tags)) FROM films", "is a bag.*array_to_string"),
        ("SELECT AI_AGG('q', passages('reviews', title, 2, 'text')) FROM films", "is a bag"),
        ("SELECT BAG(tags) FROM films", "BAG is only an argument"),
        ("SELECT LLM(PROMPT('a {0}', BAG(tags))) FROM films", "BAG is only an argument"),
        ("SELECT LLM('q', BAG(tags, id)) FROM films", "with one column or expression in it"),
        ("SELECT f.id FROM films f JOIN reviews r ON AI_FILTER('q', BAG(f.tags), r.text, "
         "classify := true)", "is a bag"),
    ):  # fmt: skip
        with pytest.raises(QueryError, match=error):
            con.sql(query)
    assert not backend.asked


def test_explain_counts_the_prompts_that_are_sent(con: Connection, backend: FakeBackend) -> None:
    con.sql(
        "CREATE OR REPLACE TABLE docs AS SELECT unnest(['red fish', 'blue fish', 'old sea']) AS t"
    )
    query = "SELECT LLM('q', passages('docs', text, 2), id) FROM (VALUES (1, 'fish'), (2, 'sea'), "
    query += "(3, NULL), (3, NULL)) AS v(id, text)"
    told = con.explain(query).calls[0]
    assert not backend.asked
    assert (told.calls, told.counts, told.fields) == (3, "exact", "BAG(passage), id")
    con.sql(query)
    assert len(backend.asked) == 3


def test_answers_of_bags_are_in_the_ledger(tmp_path: Path) -> None:
    for expected in (1, 0):
        backend = FakeBackend(upper_or_length)
        with connect(backend, ledger=tmp_path / "run.db") as con:
            con.database.execute(SETUP)
            con.sql("SELECT LLM('up', BAG(tags), id) FROM films WHERE id = 1")
        assert len(backend.asked) == expected
