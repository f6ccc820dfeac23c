"""Random pipelines give the rows that the same verbs give without SQL, in the same order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.connection import connect
from relquery.frames.frame import Frame, frame
from relquery.sql.names import quoted
from tests.frames import model
from tests.frames.model import Row
from tests.frames.near import groups, install, nearest, similarity
from tests.sql.fakes import FakeBackend

TEXTS = ["alien", "aliens", "Brazil", "dune", "", 'it\'s "odd" {0}', "naïve ☂", None, "a\nb"]


class Names(NamedTuple):
    """Of the columns: a number, a text, and a key that may be NULL."""

    id: str
    text: str
    key: str

    def say(self, words: str) -> str:
        """An instruction with these names."""
        return re.sub(r"\{(\w+)\}", lambda found: f"{{{getattr(self, found[1])}}}", words)

    def rows(self) -> list[Row]:
        """With some that are there twice."""
        rows = [
            {self.id: at, self.text: TEXTS[at * 5 % len(TEXTS)], self.key: KEYS[at * 7 % 4]}
            for at in range(12)
        ]
        return rows + rows[3:6]


KEYS = [0, 1, None, 3]
NAMES = [
    Names("id", "a text", "order"),
    Names("place", "text", "row_number"),
    Names('quote"d', "first", "select"),
    Names("left", "ünï ☂", "right"),
    Names("score", "other", "value"),
    Names("one", "a text:left", "step_1"),
    Names("LLM", "it's", "a.b"),
    Names("earlier", "later", "frame_1"),
]
"""Names that SQL reserves, or that the SQL of a frame uses itself."""

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
    words = st.sampled_from(["{text} is good", "Does {text} fit {key}?", "{key} is odd"])
    return st.lists(
        st.one_of(
            st.tuples(st.just("sem_filter"), words),
            st.tuples(st.just("asked"), words),
            st.tuples(st.just("sem_map"), words),
            st.tuples(st.just("sem_map_again"), st.just("Shorten {new}")),
            st.tuples(st.just("sem_classify"), words),
            st.tuples(st.just("sem_extract"), st.sampled_from(["text", "key"])),
            st.tuples(st.just("sem_topk"), numbers),
            st.tuples(st.just("sem_topk_by"), numbers),
            st.tuples(st.just("filter"), st.integers(0, 9)),
            st.tuples(st.just("with_columns"), numbers),
            st.tuples(st.just("sort"), st.tuples(st.integers(0, 2), st.booleans())),
            st.tuples(st.just("limit"), numbers),
            st.tuples(st.just("rename"), st.just(None)),
            st.tuples(st.just("search"), numbers),
            st.tuples(st.just("dedup"), st.sampled_from([0.5, 0.8, 1.0])),
            st.tuples(st.just("dedup_asked"), st.sampled_from([0.5, 0.8])),
        ),
        max_size=5,
    )


def ends() -> st.SearchStrategy[str]:
    """What comes last: verbs that make new rows or fewer columns, or none."""
    return st.sampled_from(
        ["", "", "select", "agg", "agg_by", "join", "left", "semi", "anti", "blocked", "near"]
    )


def searched(rows: list[Row], n: Names, k: int) -> list[Row]:
    known = [
        row | {n.key: similarity(row[n.text], "alien")} for row in rows if row[n.text] is not None
    ]
    return sorted(known, key=lambda row: -row[n.key])[:k]


OnFrame = Callable[[Frame, Names, Any], Frame]
OnRows = Callable[[list[Row], Names, Any], list[Row]]
VERBS: dict[str, tuple[OnFrame, OnRows]] = {
    "sem_filter": (
        lambda lazy, n, words: lazy.sem_filter(n.say(words)),
        lambda rows, n, words: model.sem_filter(rows, n.say(words)),
    ),
    "asked": (
        lambda lazy, n, words: lazy.sem_filter(n.say(words), output="count"),
        lambda rows, n, words: model.with_answer(rows, n.say(words), "count"),
    ),
    "sem_map": (
        lambda lazy, n, words: lazy.sem_map(n.say(words), output="new"),
        lambda rows, n, words: model.sem_map(rows, n.say(words), "new"),
    ),
    "sem_map_again": (
        lambda lazy, _, words: lazy.sem_map(words, output="newer"),
        lambda rows, _, words: model.sem_map(rows, words, "newer"),
    ),
    "sem_classify": (
        lambda lazy, n, words: lazy.sem_classify(n.say(words), ["x", "y"], "group"),
        lambda rows, n, words: model.sem_classify(rows, n.say(words), ["x", "y"], "group"),
    ),
    "sem_extract": (
        lambda lazy, n, name: lazy.sem_extract(getattr(n, name), "tag VARCHAR, stars INTEGER"),
        lambda rows, n, name: model.sem_extract(rows, getattr(n, name)),
    ),
    "sem_topk": (
        lambda lazy, n, k: lazy.sem_topk(n.say("Which {text} is best?"), k),
        lambda rows, n, k: model.sem_topk(rows, n.say("Which {text} is best?"), k),
    ),
    "sem_topk_by": (
        lambda lazy, n, k: lazy.sem_topk(n.say("the best {id}"), k, by=n.key),
        lambda rows, n, k: model.sem_topk(rows, n.say("the best {id}"), k, n.key),
    ),
    "filter": (
        lambda lazy, n, least: lazy.filter(f"{quoted(n.id)} > {least} -- a comment"),
        lambda rows, n, least: [row for row in rows if row[n.id] > least],
    ),
    "with_columns": (
        lambda lazy, n, by: lazy.with_columns(**{n.key: f"{quoted(n.id)} % {by}"}),
        lambda rows, n, by: [row | {n.key: row[n.id] % by} for row in rows],
    ),
    "sort": (
        lambda lazy, n, key: lazy.sort(n[key[0]], descending=key[1]),
        lambda rows, n, key: in_order(rows, n[key[0]], key[1]),
    ),
    "limit": (lambda lazy, _, count: lazy.limit(count), lambda rows, _, count: rows[:count]),
    "rename": (
        lambda lazy, n, _: lazy.rename({n.id: "ORDER BY"}).rename({"order by": n.id}),
        lambda rows, *_: rows,
    ),
    "search": (
        lambda lazy, n, k: lazy.sem_search(n.text, "alien", k, score=n.key),
        searched,
    ),
    "dedup": (
        lambda lazy, n, threshold: lazy.sem_dedup(n.text, threshold),
        lambda rows, n, threshold: distinct(rows, n.text, threshold),
    ),
    "dedup_asked": (
        lambda lazy, n, threshold: lazy.sem_dedup(n.text, threshold, ask=True),
        lambda rows, n, threshold: confirmed(rows, n.text, threshold),
    ),
}
"""Of each verb, how it is called on a frame, and the same without SQL."""
MADE = {
    "asked": "count",
    "sem_map": "new",
    "sem_map_again": "newer",
    "sem_classify": "group",
    "sem_extract": "tag",
}
"""A column that a verb makes."""


def distinct(rows: list[Row], name: str, threshold: float) -> list[Row]:
    first = groups([row[name] for row in rows if row[name] is not None], threshold)
    seen: dict[Any, Row] = {}
    for at, row in enumerate(rows):
        text = row[name]
        seen.setdefault(("", at) if text is None else first[text], row)
    return list(seen.values())


def confirmed(rows: list[Row], name: str, threshold: float) -> list[Row]:
    query = f'Do "earlier.{name}" and "later.{name}" say the same?'

    def is_same(one: Row, two: Row) -> bool:
        if one[name] is None or two[name] is None:
            return False
        if one[name] == two[name]:
            return True
        if similarity(one[name], two[name]) < threshold:
            return False
        return model.says_yes(query, {f"earlier.{name}": one[name], f"later.{name}": two[name]})

    return [row for at, row in enumerate(rows) if not any(is_same(one, row) for one in rows[:at])]


def in_order(rows: list[Row], name: str, descending: bool) -> list[Row]:
    known = [row for row in rows if row[name] is not None]
    unknown = [row for row in rows if row[name] is None]
    return sorted(known, key=lambda row: row[name], reverse=descending) + unknown


def others(n: Names) -> list[Row]:
    """The other side of a join."""
    return [{"w": at, n.text: text} for at, text in enumerate(["sand", "linen", "ale", "ale"])]


def ended(lazy: Frame, rows: list[Row], n: Names, end: str) -> tuple[Frame, list[Row]]:
    """A pipeline with its last verb, and the rows that it gives."""
    other = frame(others(n), lazy.connection)
    match end:
        case "":
            return lazy, rows
        case "select":
            told = [{n.key: row[n.key], n.text: row[n.text]} for row in rows]
            return lazy.select([n.key, n.text]), told
        case "agg":
            return lazy.sem_agg(n.say("Sum up {text}.")), model.sem_agg(rows, n.text)
        case "agg_by":
            told = model.sem_agg(rows, n.text, n.key)
            return lazy.sem_agg(n.say("Sum up {text}."), by=n.key), told
        case "near":
            return lazy.sem_sim_join(other, n.text, n.text, 2), neighbours(rows, n, 2)
    how = end if end in ("left", "semi", "anti") else "inner"
    near = 0.5 if end == "blocked" else None
    text = f"{{{n.text}:left}} is about {{{n.text}:right}}"
    return lazy.sem_join(other, text, how, blocking=near, recall_sample=0), pairs(
        rows, n, how, near
    )


def neighbours(rows: list[Row], n: Names, k: int) -> list[Row]:
    texts = sorted({other[n.text] for other in others(n)})
    told = []
    for row in rows:
        if row[n.text] is None:
            continue
        near = nearest(row[n.text], texts, k)
        found = [(similarity(row[n.text], two[n.text]), two) for two in others(n)]
        found = [(score, two) for score, two in found if two[n.text] in near]
        found.sort(key=lambda one: -one[0])
        told += [paired(row, two, n) | {"_scores": score} for score, two in found[:k]]
    return told


def paired(one: Row, two: Row, n: Names) -> Row:
    left = {(f"{name}:left" if name == n.text else name): value for name, value in one.items()}
    return left | {"w": two["w"], f"{n.text}:right": two[n.text]}


def pairs(rows: list[Row], n: Names, how: str, near: float | None) -> list[Row]:
    def holds(one: Row, two: Row) -> bool:
        fields = {f"left.{n.text}": one[n.text], f"right.{n.text}": two[n.text]}
        query = model.claim(f'"left.{n.text}" is about "right.{n.text}"')
        if near and (one[n.text] is None or similarity(one[n.text], two[n.text]) < near):
            return False
        return model.says_yes(query, fields)

    matches = [([two for two in others(n) if holds(one, two)], one) for one in rows]
    if how in ("semi", "anti"):
        return [one for found, one in matches if bool(found) == (how == "semi")]
    empty = {"w": None, n.text: None}
    return [
        paired(one, two, n)
        for found, one in matches
        for two in found or ([empty] if how == "left" else [])
    ]


@pytest.mark.long
@given(steps=verbs(), end=ends(), n=st.sampled_from(NAMES))
def test_a_frame_gives_the_rows_of_its_verbs(
    lend: Callable[[object], Frame], steps: list[Step], end: str, n: Names
) -> None:
    compare(lend, steps, end, n, n.rows())


GOOD = "{text} is good"
PIPELINES: list[tuple[list[Step], str]] = [  # each verb and each end once
    ([("sem_filter", GOOD), ("sem_map", GOOD), ("sem_map_again", "Shorten {new}")], "agg_by"),
    ([("search", 6), ("sem_topk_by", 2), ("rename", None)], "left"),
    ([("dedup", 0.8), ("sem_classify", GOOD), ("sort", (1, True)), ("limit", 5)], "select"),
    ([("sem_extract", "text"), ("asked", GOOD), ("sem_topk", 5)], "near"),
    ([("dedup_asked", 0.5), ("with_columns", 3)], "anti"),
    ([("filter", 5)], "semi"), ([("limit", 4)], "join"), ([("sort", (2, False))], "blocked"),
    ([("sem_topk", 6)], "agg"), ([("sem_topk_by", 1), ("sem_filter", GOOD)], ""),
]  # fmt: skip


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(at, marks=pytest.mark.long if at in (0, 1, 3, 4) else ())  # 3 s each
        for at in range(len(PIPELINES))
    ],
)
def test_a_short_frame_gives_the_rows_of_its_verbs(
    lend: Callable[[object], Frame], at: int
) -> None:
    n = NAMES[at % len(NAMES)]
    compare(lend, *PIPELINES[at], n, n.rows()[2:7] + n.rows()[-3:])


def compare(
    lend: Callable[[object], Frame], steps: list[Step], end: str, n: Names, rows: list[Row]
) -> None:
    """Run a pipeline both ways."""
    table = pd.DataFrame(rows, index=[f"row {row[n.id]}" for row in rows])
    lazy = lend(table.astype({n.key: "Int64"}))
    for step in steps:
        if step[0] == "sem_map_again" and "new" not in lazy.columns:
            continue
        if MADE.get(step[0]) in lazy.columns:  # no answer replaces another
            continue
        on_frame, on_rows = VERBS[step[0]]
        lazy, rows = on_frame(lazy, n, step[1]), on_rows(rows, n, step[1])
    lazy, rows = ended(lazy, rows, n, end)
    result = lazy.connection.sql(lazy.sql())
    told = [dict(zip(result.columns, row, strict=True)) for row in result]
    assert told == rows
    assert result.columns == lazy.columns
    given_back = lazy.collect()
    assert list(given_back.columns) == lazy.columns
    pd.testing.assert_frame_equal(
        given_back, result.df().set_axis(given_back.index), check_dtype=False
    )
    is_new = any(name in ("search", "with_columns") for name, _ in steps)
    if n.key in given_back.columns and not is_new:
        assert given_back[n.key].dtype == "Int64"
    if n.id in given_back.columns and end in ("", "semi", "anti"):
        assert list(given_back.index) == [f"row {at}" for at in given_back[n.id]]
