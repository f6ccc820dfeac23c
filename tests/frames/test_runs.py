"""A frame as a polars LazyFrame asks the model when polars collects it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from relquery.connection import Connection
from relquery.errors import TableError, UnknownColumnError
from relquery.frames.frame import Frame, frame
from tests.sql.fakes import FakeBackend

ROWS = pl.DataFrame({"title": ["Alien", "Brazil", "Dune", None], "year": [1979, 1985, 1984, 1]})


@pytest.fixture
def said(con: Connection) -> Frame:
    return frame(ROWS.lazy(), con).sem_map("Say {title}", output="said").sem_score("{title} is old")


def test_no_call_is_made_before_polars_collects(said: Frame, backend: FakeBackend) -> None:
    lazy = said.pl(lazy=True)
    assert isinstance(lazy, pl.LazyFrame)
    assert lazy.collect_schema() == {
        "title": pl.String, "year": pl.Int64, "said": pl.String, "_score": pl.Float64,
    }  # fmt: skip
    assert not backend.asked
    assert lazy.collect().equals(said.pl())
    assert backend.asked


@pytest.mark.parametrize(
    ("query", "calls"),
    [
        (lambda lazy: lazy.select("said", "title"), 4),
        (lambda lazy: lazy.select("year", "title"), 0),
        (lambda lazy: lazy.select(pl.len()), 0),
        (lambda lazy: lazy.head(1), 2),
        (lambda lazy: lazy.head(2).filter(pl.col("year") > 1980).select("said"), 2),
        (lambda lazy: lazy.filter(pl.col("year") > 1980).head(1).select("title"), 0),
        (lambda lazy: lazy.filter(pl.col("_score") > 0.5).select(pl.col("year").sum()), 4),
        (lambda lazy: lazy.slice(1, 2).sort("year"), 8),
        (lambda lazy: lazy.group_by("year").len().sort("year"), 0),
    ],
)
def test_it_asks_for_the_columns_and_first_rows_that_are_read(
    said: Frame, backend: FakeBackend, query: Any, calls: int
) -> None:
    given = query(said.pl(lazy=True)).collect()
    assert len(backend.asked) <= calls
    assert given.equals(query(said.pl().lazy()).collect())


def test_types_are_known_beforehand(con: Connection) -> None:
    lazy = (
        frame(ROWS, con)
        .with_columns(
            n="year::INTEGER",
            d="DATE '2000-01-01' + n",
            e="{'a': [year, NULL]}",
            f="year::DECIMAL(9,2)",
        )
        .sem_map("Rate {title}", output="tag VARCHAR, stars INTEGER")
        .limit(3)
        .sem_classify("Which kind is {tag}?", ["x", "y"], "kind")
        .sort("stars")
    )
    assert lazy.pl(lazy=True).collect().equals(lazy.pl())


def test_errors_are_relquery_s_own(con: Connection) -> None:
    huge = frame([{"n": 1}], con).with_columns(n=f"{2**127 - 1}::HUGEINT * n")
    with pytest.raises(TableError, match=r"Column 'n' has values.* Write f.pl\(\)"):
        huge.pl(lazy=True).collect()
    assert huge.select("n").pl()["n"].to_list() == [str(2**127 - 1)]
    with pytest.raises(UnknownColumnError, match="Columns: title, year"):
        frame(ROWS, con).limit(2).filter("LLM('Say', yeer) = 'a'").pl(lazy=True)


def test_a_result_can_be_lazy_too(con: Connection) -> None:
    result = con.sql("SELECT 1.5 AS n")
    lazy = result.pl(lazy=True)
    assert isinstance(lazy, pl.LazyFrame)
    assert lazy.collect().to_dicts() == [{"n": Decimal("1.5")}]
