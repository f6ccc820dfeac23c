"""The query types of paper 000 on the table of the paper, in seconds besides the model."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from relquery.config import Order
from relquery.connection import Connection, connect
from tests.data import data_path
from tests.sql.fakes import FakeBackend, Fields

pytestmark = [pytest.mark.data, pytest.mark.long]


def judge(query: str, fields: Fields) -> str:
    size = len(fields["reviewcontent"])
    if query == "Rate from 1 to 5.":
        return str(size % 5 + 1)
    return "Yes" if size % 3 else "No"


SIZE = "length(reviewcontent)"


@pytest.fixture
def con() -> Iterator[Connection]:
    movies = data_path("movies/movies.parquet")
    with connect(FakeBackend(judge), ledger=None) as connection:
        connection.register("movies", movies)
        yield connection


@pytest.mark.parametrize(
    ("query", "plain"),
    [
        (
            "SELECT movietitle FROM movies WHERE LLM('Good?', movieinfo, reviewcontent, "
            "reviewtype, movietitle) = 'Yes'",
            f"SELECT movietitle FROM movies WHERE {SIZE} % 3 != 0",
        ),
        (
            "SELECT LLM('Good?', movies.*), rottentomatoeslink FROM movies WHERE topcritic "
            "AND LLM('Rate from 1 to 5.', reviewcontent) = 4",
            f"SELECT if({SIZE} % 3 = 0, 'No', 'Yes'), rottentomatoeslink FROM movies "
            f"WHERE topcritic AND {SIZE} % 5 + 1 = 4",
        ),
        (
            "SELECT movietitle, AVG(LLM('Rate from 1 to 5.', reviewcontent, movieinfo)) AS s "
            "FROM movies GROUP BY movietitle ORDER BY s DESC, movietitle LIMIT 5",
            f"SELECT movietitle, AVG({SIZE} % 5 + 1) AS s FROM movies GROUP BY movietitle "
            "ORDER BY s DESC, movietitle LIMIT 5",
        ),
    ],
)
def test_a_query_type_of_the_paper_gives_the_rows_that_it_should(
    query: str, plain: str, con: Connection
) -> None:
    result = con.sql(query)
    movies = data_path("movies/movies.parquet")
    expected = duckdb.execute(plain.replace("FROM movies", f"FROM '{movies}'")).fetchall()
    assert result.fetchall() == expected


def test_reordering_brings_equal_fields_to_the_front(con: Connection) -> None:
    query = "SELECT LLM('Good?', movies.*) FROM movies LIMIT 3000"
    orders: list[Order] = ["original", "ggr"]
    rates = {order: con.sql(query, order=order).report.stages[0].phr for order in orders}
    assert rates["original"] < 0.1
    assert rates["ggr"] > 0.7
