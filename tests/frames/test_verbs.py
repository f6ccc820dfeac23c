"""Verbs of a frame: the SQL that they become, and what they ask."""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd
import polars as pl
import pytest

from relquery import errors
from relquery.connection import Connection, connect
from relquery.errors import ConfigError, UnknownColumnError
from relquery.frames.frame import Frame, frame
from relquery.frames.recall import FrameResult
from tests.cases import case_file
from tests.frames.model import answer, says_yes
from tests.frames.near import similarity
from tests.sql.fakes import FakeBackend

FILMS = [
    {"title": title, "year": 1970 + 9 * at}
    for at, title in enumerate(["Alien", "Brazil", "Dune", "Amelie", "Aliens", "Heat"])
]


@pytest.fixture
def films(con: Connection) -> Frame:
    return frame(FILMS, con)


def test_a_whole_pipeline_is_one_select_and_filters_ask_first(
    films: Frame, backend: FakeBackend
) -> None:
    lazy = (
        films.sem_map("Say {title}", output="said")
        .filter("year > 1975")
        .sem_filter("{title} is good")
    )
    assert re.sub(r"frame_\d+", "frame_1", lazy.limit(2).sql()).splitlines() == [
        "SELECT *, LLM('Say {0}', \"title\") AS \"said\"",
        'FROM "frame_1"',
        "WHERE (year > 1975) AND AI_FILTER('Is this true? {0} is good', \"title\")",
        "LIMIT 2",
    ]  # fmt: skip
    assert not backend.asked
    rows = lazy.limit(2).collect()
    good = [
        film["title"]
        for film in FILMS[1:]
        if says_yes('Is this true? "title" is good', {"title": film["title"]})
    ]
    assert [row["title"] for row in rows] == good[:2]
    assert sum("Say" in query for query in backend.queries) == len(rows)


def test_a_filter_on_a_new_column_reads_a_step(films: Frame) -> None:
    lazy = films.sem_map("Say {title}", output="said").sem_filter("{said} is good")
    assert lazy.sql().startswith("WITH step_1 AS (\n")


def test_a_window_sees_all_rows_of_its_frame(films: Frame) -> None:
    lazy = films.limit(4).with_columns(n="count(*) OVER ()").filter("year > 1980")
    assert [row["n"] for row in lazy.collect()] == [4, 4]


def test_equal_inputs_are_asked_once_and_nothing_runs_before(backend: FakeBackend) -> None:
    with connect(backend) as con:
        lazy = frame([{"x": "same"}] * 5, con).sem_map("Say {x}")
        assert not backend.asked
        assert len(lazy.collect()) == 5
        lazy.collect()
        assert len(backend.asked) == 1


def test_answers_have_types_and_several_outputs_are_one_call(
    films: Frame, backend: FakeBackend
) -> None:
    rows = films.sem_map("Rate {title}", output="tag VARCHAR, stars INTEGER").collect()
    assert list(rows[0]) == ["title", "year", "tag", "stars"]
    assert all(isinstance(row["stars"], int) for row in rows)
    assert len(backend.asked) == len(FILMS)
    extracted = films.sem_extract("title", {"tag": "a word", "stars": None}).collect()
    assert list(extracted[0]) == ["title", "year", "tag", "stars"]
    assert all(isinstance(row["stars"], str) for row in extracted)


def test_labels_and_classes(films: Frame) -> None:
    rows = films.sem_classify("Which kind is {title}?", ["x", "y"], "kind").collect()
    assert {row["kind"] for row in rows} <= {"x", "y"}
    asked = films.sem_filter("{title} is good", output="good").collect()
    assert {row["good"] for row in asked} == {True, False}
    scores = films.sem_score("{title} is good").collect()
    assert [one["_score"] > 0.5 for one in scores] == [row["good"] for row in asked]


def test_a_new_column_takes_the_place_of_the_old_one(films: Frame) -> None:
    lazy = films.with_columns(TITLE="upper(title)")
    assert lazy.columns == ["TITLE", "year"]
    assert lazy.sort("year").with_columns(year="-year").collect()[0]["year"] == -1970


def test_a_join_asks_only_about_near_pairs_and_tells_its_recall(
    films: Frame, backend: FakeBackend
) -> None:
    topics = ["aliens", "heat", "dunes", "sand"]
    other = frame([{"topic": topic} for topic in topics], films.connection)
    claim = "{title} is about {topic}"
    near = [
        (film["title"], topic)
        for film in FILMS
        for topic in topics
        if similarity(str(film["title"]), topic) >= 0.5
    ]
    exact = films.sem_join(other, claim)
    all_pairs = {(row["title"], row["topic"]) for row in exact.collect()}
    backend.asked.clear()
    blocked = films.sem_join(other, claim, blocking=0.5, recall_sample=100)
    result = blocked.result()
    found = [(row[0], row[2]) for row in result]
    assert found == [pair for pair in near if pair in all_pairs]
    assert isinstance(result, FrameResult)
    (recall,) = result.recalls
    assert recall.estimate == len(found) / len(all_pairs)
    assert recall.interval == (recall.estimate, recall.estimate)
    assert str(recall) in repr(result)
    sampled = films.sem_join(other, claim, blocking=0.5, recall_sample=4).result()
    assert isinstance(sampled, FrameResult)
    (recall,) = sampled.recalls
    assert recall.asked == 4
    low, high = recall.interval
    assert low <= len(found) / len(all_pairs) <= high
    assert low < high
    backend.asked.clear()
    plan = films.sem_join(other, claim, blocking=0.5, recall_sample=0)
    assert plan.explain().calls[0].rows == len(near)
    assert "a cosine of 0.5" in str(plan.explain())
    plan.collect()
    assert len(backend.asked) == len(near)


def test_names_in_a_join_need_a_side_only_if_both_have_them(films: Frame) -> None:
    pairs = films.limit(2).sem_join(films.limit(1), "{title:left} is like {title:right}", "left")
    assert pairs.columns == ["title:left", "year:left", "title:right", "year:right"]
    assert len(pairs.collect()) == 2


def test_the_nearest_rows_come_first(films: Frame) -> None:
    other = frame([{"topic": topic} for topic in ["aliens", "heat"]], films.connection)
    rows = films.limit(2).sem_sim_join(other, "title", "topic", 1).collect()
    assert [(row["title"], row["topic"]) for row in rows] == [
        ("Alien", "aliens"), ("Brazil", "aliens"),
    ]  # fmt: skip
    found = films.sem_search("title", "aliens", 2, score="near").collect()
    assert [row["title"] for row in found] == ["Aliens", "Alien"]
    assert found[0]["near"] == 1.0


def test_a_search_may_be_ranked_by_the_model(films: Frame, backend: FakeBackend) -> None:
    assert len(films.sem_search("title", "aliens", 3, rerank=1).collect()) == 1
    assert len(backend.asked) == 3


def test_duplicates_may_be_confirmed_by_the_model(films: Frame, backend: FakeBackend) -> None:
    kept = films.sem_dedup("title", 0.9).collect()
    assert [row["title"] for row in kept] == ["Alien", "Brazil", "Dune", "Amelie", "Heat"]
    films.sem_dedup("title", 0.9, ask=True).collect()
    assert [request.fields for request in backend.asked] == [
        {"earlier.title": "Alien", "later.title": "Aliens"}
    ]


def test_groups_of_near_duplicates_do_not_chain_with_the_default_embedder() -> None:
    rows = [{"name": name} for name in ("abcdef", "bcdefg", "cdefgh", "defghi")]
    with connect(FakeBackend(answer)) as con:
        kept = frame(rows, con).sem_dedup("name", 0.4).collect()
    assert [row["name"] for row in kept] == ["abcdef", "cdefgh"]


def test_an_empty_text_is_a_text_that_is_near_nothing_with_the_default_embedder() -> None:
    rows = [{"text": text} for text in ("", "alien", None, "", "aliens")]
    with connect(FakeBackend(answer)) as con:
        lazy = frame(rows, con)
        found = lazy.sem_search("text", "alien", 9, score="near").collect()
        pairs = lazy.sem_sim_join([{"other": "alien"}], "text", "other", 1).collect()
        kept = lazy.sem_dedup("text", 0.5).collect()
    assert [row["text"] for row in found] == ["alien", "aliens", "", ""]
    assert [row["near"] for row in found[2:]] == [0, 0]
    assert [(row["text"], row["_scores"]) for row in pairs if not row["text"]] == [("", 0)] * 2
    assert [row["text"] for row in kept] == ["", "alien", None]


def test_wrong_arguments_are_errors_at_once(films: Frame, con: Connection) -> None:
    with connect(FakeBackend(answer)) as another, pytest.raises(ConfigError, match="another"):
        films.sem_join(frame(FILMS, another), "{title:left} is {title:right}")


def test_a_new_column_has_a_name_that_no_other_has(films: Frame) -> None:
    twice: list[Callable[[], Frame]] = [
        lambda: films.select("year", "year"),
        lambda: films.sem_agg("Sum {title} up", "YEAR", by="year"),
        lambda: films.sem_extract("title", {"a": None, "A": None}),
        lambda: films.sem_sim_join(films, "title", "title", 1, score="Title:LEFT"),
        lambda: films.sem_search("title", "alien", 2, score="Title"),
        lambda: films.rename({"year": "title:left"}).sem_join(
            films.select("title"), "{title:left} is like {title:right}"
        ),
    ]
    for make in twice:
        with pytest.raises(ConfigError, match="two columns the name"):
            make()
    for make in (
        lambda: films.rename({"title": 3}),  # type: ignore[dict-item]
        lambda: films.sem_filter("{title}?", output=" "),
        lambda: films.sem_classify("{title}?", ["x"], None),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError, match="it must be a text"):
            make()


def test_columns_are_named_one_by_one_or_in_lists(films: Frame) -> None:
    assert films.select(["year", "title"]).columns == ["year", "title"]
    assert films.select(films.columns[:1], "year").columns == ["title", "year"]


def test_each_column_of_a_sort_has_its_own_direction(films: Frame) -> None:
    lazy = films.with_columns(late="year > 1985").sort(["late", "title"], descending=[True, False])
    assert [row["title"] for row in lazy.collect()] == [
        "Aliens", "Amelie", "Dune", "Heat", "Alien", "Brazil",
    ]  # fmt: skip


def test_a_condition_that_is_not_sql_is_refused(films: Frame) -> None:
    series, expression = pd.Series([True]), pl.col("year") > 3
    odd = [(series, "a Series"), (expression, "an Expr"), (3, "an int"), ("", "''")]
    for data, word in odd:
        with pytest.raises(ConfigError, match=rf"was given {word}; .*filter\('year > 2000'\)"):
            films.filter(data)  # type: ignore[arg-type]


def test_an_unknown_column_in_sql_is_an_error_at_once_with_those_of_the_frame(
    films: Frame,
) -> None:
    known = r"'yeer' is not in the frame. Columns: title, year. Did you mean 'year'\?"
    for condition in ("yeer > 3", "sum(yeer) OVER () > 3", "year IN (SELECT yeer)"):
        with pytest.raises(UnknownColumnError, match=known):
            films.filter(condition)
    # Names that are no columns.
    ranges = "list_filter([1, 2], lambda x: x < year)[1] = 1 AND [y FOR y IN [1] IF y < year] = [1]"
    assert len(films.filter(ranges).collect()) == len(FILMS)


def test_columns_that_a_frame_adds_are_neither_read_nor_listed(con: Connection) -> None:
    lazy = frame(pd.DataFrame(FILMS), con).sem_topk("best {title}", 4, by="year")
    for hidden in ("row_number", "place", "value"):
        known = rf"'{hidden}' is not.*Columns: title, year\."
        with pytest.raises(UnknownColumnError, match=known):
            lazy.filter(f"{hidden} > 1")
    late = lazy.limit(3).filter("LLM('Say', placex) = 'a'")
    for run in (late.collect, late.explain):
        with pytest.raises(UnknownColumnError, match=r"not in the frame. Columns: title, year\."):
            run()


def test_the_columns_of_a_join_can_be_joined_again(films: Frame) -> None:
    titles = films.select("title").limit(2)
    pairs = titles.sem_join(titles, "{title:left} is like {title:right}")
    again = pairs.sem_join(titles, "{title:left} is older than {title}")
    assert again.columns == ["title:left", "title:right", "title"]
    assert list(again.limit(1).df().columns) == again.columns


def test_duplicates_are_found_in_columns_of_any_name(con: Connection) -> None:
    for name in ("text", "First", "place", "score"):
        rows = [{name: "a b"}, {name: "a b"}, {name: None}, {name: "c"}]
        kept = frame(rows, con).sem_dedup(name, 1.0).collect()
        assert kept == [{name: "a b"}, {name: None}, {name: "c"}]


def test_a_new_column_does_not_change_the_order_of_rows(con: Connection) -> None:
    lazy = frame([{"a": x, "n": i} for i, x in enumerate("dcbaegf")], con).sem_dedup("a", 1.0)
    for name in ("place", "Place"):
        kept = lazy.with_columns(**{name: "-n"}).limit(2).collect()
        assert [row["a"] for row in kept] == ["d", "c"]


def test_what_is_wrong_is_refused_when_the_verb_is_written(films: Frame, con: Connection) -> None:
    for use, error, message in case_file(__file__, "verbs_refused.txt"):
        with pytest.raises(getattr(errors, error), match=message):
            eval(use, globals() | {"films": films, "con": con})
