"""Random pipelines give the rows that the same verbs give without SQL, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relquery.connection import connect
from relquery.frames.frame import Frame, frame
from tests.frames import model
from tests.frames.model import Row
from tests.frames.near import groups, install, similarity
from tests.sql.fakes import FakeBackend

TEXTS = ["alien", "aliens", "Brazil", "dune", "", 'it\'s "odd" {0}', "naïve ☂", None]
ROWS: list[Row] = [
    {"id": at, "a text": TEXTS[at * 5 % len(TEXTS)], "order": at * 7 % 4} for at in range(14)
]
OTHERS: list[Row] = [{"w": at, "a text": text} for at, text in enumerate(["sand", "linen", "ale"])]

Step = tuple[str, Any]


@pytest.fixture(scope="module")
def lend() -> Iterator[Callable[[object], Frame]]:
    """Makes frames of one connection."""
    with connect(FakeBackend(model.answer)) as connection:
        install(connection)
        yield lambda data: frame(data, connection)


def verbs() -> st.SearchStrategy[list[Step]]:
    """Names of verbs with what varies in them."""
    numbers = st.integers(1, 6)
    names = st.sampled_from(["id", "a text", "order"])
    words = st.sampled_from(["{a text} is good", "Does {a text} fit {order}?", "{order} is odd"])
    return st.lists(
        st.one_of(
            st.tuples(st.just("sem_filter"), words),
            st.tuples(st.just("sem_map"), words),
            st.tuples(st.just("sem_map_again"), st.just("Shorten {new}")),
            st.tuples(st.just("sem_topk"), numbers),
            st.tuples(st.just("sem_topk_by"), numbers),
            st.tuples(st.just("filter"), st.integers(0, 9)),
            st.tuples(st.just("with_columns"), numbers),
            st.tuples(st.just("sort"), st.tuples(names, st.booleans())),
            st.tuples(st.just("limit"), numbers),
            st.tuples(st.just("rename"), st.just(None)),
            st.tuples(st.just("search"), numbers),
            st.tuples(st.just("dedup"), st.sampled_from([0.5, 0.8, 1.0])),
        ),
        max_size=5,
    )


def ends() -> st.SearchStrategy[str]:
    """What comes last: verbs that make new rows, or none."""
    return st.sampled_from(["", "", "agg", "agg_by", "join", "left", "semi", "anti", "blocked"])


VERBS: dict[str, tuple[Callable[[Frame, Any], Frame], Callable[[list[Row], Any], list[Row]]]] = {
    "sem_filter": (lambda lazy, text: lazy.sem_filter(text), model.sem_filter),
    "sem_map": (
        lambda lazy, text: lazy.sem_map(text, output="new"),
        lambda rows, text: model.sem_map(rows, text, "new"),
    ),
    "sem_map_again": (
        lambda lazy, text: lazy.sem_map(text, output="new"),
        lambda rows, text: model.sem_map(rows, text, "new"),
    ),
    "sem_topk": (
        lambda lazy, k: lazy.sem_topk("Which {a text} is best?", k),
        lambda rows, k: model.sem_topk(rows, "Which {a text} is best?", k),
    ),
    "sem_topk_by": (
        lambda lazy, k: lazy.sem_topk("the best {id}", k, by="order"),
        lambda rows, k: model.sem_topk(rows, "the best {id}", k, "order"),
    ),
    "filter": (
        lambda lazy, least: lazy.filter(f"id > {least} -- a comment"),
        lambda rows, least: [row for row in rows if row["id"] > least],
    ),
    "with_columns": (
        lambda lazy, by: lazy.with_columns(order=f"id % {by}"),
        lambda rows, by: [row | {"order": row["id"] % by} for row in rows],
    ),
    "sort": (
        lambda lazy, key: lazy.sort(key[0], descending=key[1]),
        lambda rows, key: in_order(rows, *key),
    ),
    "limit": (lambda lazy, count: lazy.limit(count), lambda rows, count: rows[:count]),
    "rename": (
        lambda lazy, _: lazy.rename({"id": "ORDER BY"}).rename({"order by": "id"}),
        lambda rows, _: rows,
    ),
    "search": (
        lambda lazy, k: lazy.sem_search("a text", "alien", k),
        lambda rows, k: sorted(
            (row for row in rows if row["a text"] is not None),
            key=lambda row: -similarity(row["a text"], "alien"),
        )[:k],
    ),
    "dedup": (
        lambda lazy, threshold: lazy.sem_dedup("a text", threshold),
        lambda rows, threshold: distinct(rows, threshold),  # noqa: PLW0108,
    ),
}
"""Of each verb, how it is called on a frame, and the same without SQL."""


def distinct(rows: list[Row], threshold: float) -> list[Row]:
    first = groups([row["a text"] for row in rows if row["a text"] is not None], threshold)
    seen: dict[Any, Row] = {}
    for row in rows:
        text = row["a text"]
        seen.setdefault(("", row["id"]) if text is None else first[text], row)
    return list(seen.values())


def in_order(rows: list[Row], name: str, descending: bool) -> list[Row]:
    known = [row for row in rows if row[name] is not None]
    unknown = [row for row in rows if row[name] is None]
    return sorted(known, key=lambda row: row[name], reverse=descending) + unknown


def ended(lazy: Frame, rows: list[Row], end: str) -> tuple[Frame, list[Row]]:
    """A pipeline with its last verb, and the rows that it gives."""
    if end.startswith("agg"):
        by = "order" if end == "agg_by" else None
        told = model.sem_agg(rows, "Sum up {a text}.", "a text", by)
        if by and not rows:
            told = []
        return lazy.sem_agg("Sum up {a text}.", by=by or ()), told
    if not end:
        return lazy, rows
    other = frame(OTHERS, lazy.connection)
    how = end if end in ("left", "semi", "anti") else "inner"
    near = 0.5 if end == "blocked" else None
    text = "{a text:left} is about {a text:right}"

    def holds(one: Row, two: Row) -> bool:
        fields = {"left.a text": one["a text"], "right.a text": two["a text"]}
        query = model.claim('"left.a text" is about "right.a text"')
        if near and (one["a text"] is None or similarity(one["a text"], two["a text"]) < near):
            return False
        return model.says_yes(query, fields)

    paired = [([two for two in OTHERS if holds(one, two)], one) for one in rows]
    if how in ("semi", "anti"):
        kept = [one for found, one in paired if bool(found) == (how == "semi")]
        return lazy.sem_join(other, text, how), kept
    empty = {"w": None, "a text": None}
    pairs = [
        {(f"{name}:left" if name == "a text" else name): value for name, value in one.items()}
        | {"a text:right": two["a text"], "w": two["w"]}
        for found, one in paired
        for two in found or ([empty] if how == "left" else [])
    ]
    return lazy.sem_join(other, text, how, blocking=near, recall_sample=0), pairs


@settings(max_examples=15)
@given(steps=verbs(), end=ends())
def test_a_frame_gives_the_rows_of_its_verbs(
    lend: Callable[[object], Frame], steps: list[Step], end: str
) -> None:
    table = pd.DataFrame(ROWS, index=[f"row {row['id']}" for row in ROWS])
    lazy, rows = lend(table), ROWS
    for step in steps:
        if step[0] == "sem_map_again" and "new" not in lazy.columns:
            continue
        on_frame, on_rows = VERBS[step[0]]
        lazy, rows = on_frame(lazy, step[1]), on_rows(rows, step[1])
    lazy, rows = ended(lazy, rows, end)
    result = lazy.connection.sql(lazy.sql())
    told = [dict(zip(result.columns, row, strict=True)) for row in result]
    assert told == rows
    assert result.columns == lazy.columns
    given_back = lazy.collect()
    assert list(given_back.columns) == lazy.columns
    assert given_back.equals(result.df().set_axis(given_back.index))
    if "id" in given_back.columns and end in ("", "semi", "anti"):
        assert list(given_back.index) == [f"row {at}" for at in given_back["id"]]
