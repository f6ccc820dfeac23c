"""What is written wrongly is refused with the right form, and a name that a frame does not have."""

from __future__ import annotations

import copy
import re

import pandas as pd
import pytest

from relquery.connection import Connection, connect
from relquery.errors import ConfigError, TableError, UnknownVerbError
from relquery.frames.frame import Frame, frame
from relquery.frames.hints import _INSTEAD, no_such
from tests.cases import case_file
from tests.frames.near import install
from tests.sql.fakes import FakeBackend

ROWS = [{"id": number, "message": f"text {number}"} for number in range(7)]


@pytest.fixture
def rows(con: Connection) -> Frame:
    return frame(ROWS, con)


def test_a_wrong_argument_is_refused_with_the_right_form(rows: Frame, backend: FakeBackend) -> None:
    for use, remedy in case_file(__file__, "refused.txt"):
        with pytest.raises(ConfigError, match=re.escape(remedy)):
            eval(use, {"f": rows})
    assert not backend.asked


def test_labels_may_be_numbers_and_have_descriptions(rows: Frame) -> None:
    labels = [{"label": "x", "description": "the first"}, "y"]
    rows.sem_classify("Kind of {message}", labels).collect()  # type: ignore[arg-type]
    rows.sem_classify("Kind of {message}", [1, 2]).collect()  # type: ignore[list-item]


def test_a_series_is_refused_as_one_column(con: Connection) -> None:
    with pytest.raises(TableError, match=re.escape("A Series is one column; write df[['id']]")):
        frame(pd.DataFrame(ROWS)["id"], con)


def test_an_empty_column_name_is_refused(con: Connection) -> None:
    with pytest.raises(TableError, match="Column 1 has an empty name"):
        frame(pd.DataFrame({"": ["a"], "x": [1]}), con)


def test_head_gives_five_rows_unless_told(rows: Frame) -> None:
    assert [len(rows.head().collect()), len(rows.head(2).collect())] == [5, 2]


def test_identical_texts_are_duplicates_without_a_call() -> None:
    refuses = FakeBackend(lambda query, fields: "No")
    with connect(refuses, ledger=None) as con:
        install(con)
        rows = [{"text": text} for text in ("red apple", None, "red apple", "red apples", None)]
        kept = frame(rows, con).sem_dedup("text", 0.1, ask=True).pl()["text"].to_list()
    assert kept == ["red apple", None, "red apples", None]
    assert [set(one.fields.values()) for one in refuses.asked] == [{"red apple", "red apples"}]


FILMS = [{"title": "Alien", "year": 1979}]


@pytest.fixture
def films(con: Connection) -> Frame:
    return frame(FILMS, con)


def test_an_attribute_that_is_missing_names_the_one_to_use(films: Frame) -> None:
    for name, remedy in case_file(__file__, "hints.txt"):
        with pytest.raises(UnknownVerbError, match=re.escape(remedy)):
            getattr(films, name)
        assert not hasattr(films, name)


def test_each_remedy_is_a_verb_of_a_frame() -> None:
    for name in _INSTEAD:
        assert not hasattr(Frame, name)
        verbs = re.findall(r"\bf\.(\w+)", no_such(name, (), ()))
        assert verbs
        assert all(hasattr(Frame, verb) for verb in verbs)


def test_a_frame_can_be_copied_and_is_true(films: Frame) -> None:
    assert copy.copy(films).collect() == FILMS
    assert bool(films)
    assert not hasattr(films, "__array__")


def test_items_and_rows_are_refused_with_what_to_write(films: Frame) -> None:
    with pytest.raises(ConfigError, match=r"f.select\('title'\)"):
        films["title"]
    with pytest.raises(ConfigError, match=r"f.select\('title', 'year'\)"):
        films[["title", "year"]]
    with pytest.raises(ConfigError, match=r"f.limit\(10, offset=20\) for a slice"):
        films[1:3]
    for use in (len, list, lambda lazy: "Alien" in lazy):
        with pytest.raises(ConfigError, match=r"no rows before it runs. Write f.collect\(\)"):
            use(films)
