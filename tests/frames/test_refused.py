"""What is written wrongly is refused when the verb is written, with the right form, and no call."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from relquery.connection import Connection, connect
from relquery.errors import ConfigError, TableError
from relquery.frames.frame import Frame, frame
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
