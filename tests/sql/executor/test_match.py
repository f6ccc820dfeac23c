"""A join condition with `classify` asks about one row and many of the other table at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from relquery.backends.base import Backend, Insight
from relquery.connection import Connection, connect
from relquery.errors import PartialResultWarning, QueryError, RequestError
from relquery.prompt import Answer, Finish, Prompt, Sampling
from tests.sql.fakes import text_of

JOIN = "SELECT a.x, b.y FROM a JOIN b ON {} ORDER BY ALL"
AT_ONCE = JOIN.format("AI_FILTER('Divisible?', a.x, b.y, classify := true)")


@dataclass
class Divider(Backend, Insight):
    """Whether x is divisible by y, for one pair or for numbered candidates."""

    broken: str = ""
    limit: int | None = None
    asked: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return "divider"

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        for index, prompt in enumerate(prompts):
            text = "".join(map(text_of, prompt[1:]))
            self.asked.append(text)
            yield index, Answer(self._answer(text), Finish.STOP, output_tokens=1)

    @property
    def insight(self) -> Insight:
        return self

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int] | None:
        if self.limit is None:
            return None
        sizes = [sum(len(text_of(span)) for span in prompt) for prompt in prompts]
        return [size if size < self.limit else 0 for size in sizes]

    def _answer(self, text: str) -> str:
        data = json.loads(text[text.rindex("{\n") :])
        listing = re.findall(r"^(\d+)\. (\{.*\})$", text, re.MULTILINE)
        if not listing:
            return "Yes" if _divides(data) else "No"
        if self.broken and f'"x": {self.broken}' in text:
            return '{"answer": [99]}'
        return json.dumps(
            {"answer": [int(n) for n, one in listing if _divides(data | json.loads(one))]}
        )


def _divides(row: dict[str, int]) -> bool:
    return row["x"] % row["y"] == 0


@pytest.fixture
def backend() -> Divider:
    return Divider()


@pytest.fixture
def con(backend: Divider) -> Iterator[Connection]:
    with connect(backend, ledger=None) as connection:
        connection.database.execute(
            "CREATE TABLE a AS SELECT i + 1 AS x, i % 3 AS k FROM range(30) r(i);"
            "CREATE TABLE b AS SELECT i + 1 AS y, i % 3 AS k FROM range(40) r(i)"
        )
        yield connection


def pairs(xs: int, ys: int) -> list[tuple[int, int]]:
    return [(x, y) for x in range(1, xs + 1) for y in range(1, ys + 1) if x % y == 0]


def test_pairs_are_those_of_asking_about_each(con: Connection, backend: Divider) -> None:
    (call,) = con.explain(AT_ONCE).calls
    assert (call.rows, call.calls, call.counts) == (1200, 30, "exact")
    assert backend.asked == []
    assert con.sql(AT_ONCE).fetchall() == pairs(30, 40)
    assert len(backend.asked) == 30
    backend.asked.clear()
    backend.limit = 700  # candidates that do not fit are asked in parts
    assert con.sql(AT_ONCE).fetchall() == pairs(30, 40)
    assert len(backend.asked) > 30


def test_a_plain_condition_leaves_fewer_pairs(con: Connection, backend: Divider) -> None:
    on = "a.k = b.k AND a.x > b.y AND AI_FILTER('Divisible?', a.x, b.y{})"
    wanted = con.sql(JOIN.format(on.format(""))).fetchall()
    singly = len(backend.asked)
    backend.asked.clear()
    assert con.sql(JOIN.format(on.format(", classify := true"))).fetchall() == wanted
    assert len(backend.asked) < 30 < singly


def test_the_few_values_are_the_candidates(con: Connection, backend: Divider) -> None:
    con.database.execute("CREATE TABLE many AS SELECT i % 100 + 1 AS x FROM range(300) r(i)")
    con.sql(AT_ONCE.replace("FROM a", "FROM many a"))
    assert len(backend.asked) == 100  # equal rows are asked about once
    assert all(text.count('"y"') == 40 for text in backend.asked)


def test_many_candidates_are_asked_in_several_calls(con: Connection, backend: Divider) -> None:
    con.database.execute(
        "CREATE TABLE p AS SELECT i + 1 AS x FROM range(60) r(i);"
        "CREATE TABLE q AS SELECT i + 1 AS y FROM range(70) r(i)"
    )
    query = AT_ONCE.replace("FROM a", "FROM p a").replace("JOIN b", "JOIN q b")
    assert con.sql(query).fetchall() == pairs(60, 70)
    assert len(backend.asked) == 140  # 60 candidates in two calls for each of 70


def test_an_error_is_that_of_its_pairs_alone(con: Connection, backend: Divider) -> None:
    wanted = [pair for pair in pairs(30, 40) if pair[0] != 7]
    backend.broken = "7\n"
    with pytest.warns(
        PartialResultWarning,
        match="is .99.; expected INTEGER from 1 to 40|is 99; expected INTEGER from 1 to 40",
    ):
        result = con.sql(AT_ONCE)
    assert result.fetchall() == wanted
    assert len(result.errors) == 40
    with pytest.raises(RequestError, match="is 99; expected"):
        con.sql(AT_ONCE, on_error="raise")


def test_a_second_run_finds_the_calls_in_the_ledger(backend: Divider) -> None:
    with connect(backend) as con:
        con.database.execute("CREATE TABLE a AS SELECT 6 AS x; CREATE TABLE b AS SELECT 3 AS y")
        assert con.sql(AT_ONCE).report.calls == 1
        assert con.sql(AT_ONCE).report.ledger_hits == 1


def test_what_is_no_pair_of_tables_is_refused(con: Connection, backend: Divider) -> None:
    for call, message in [
        ("AI_FILTER('?', a.x, classify := true)", "fields of two tables"),
        ("AI_FILTER('?', a.x + b.y, classify := true)", "fields of two tables"),
        ("AI_FILTER(PROMPT('{0} {1}?', a.x, b.y), classify := true)", "needs a text"),
        ("AI_FILTER('?', a.x, b.y, classify := 1)", "expected true or false"),
    ]:
        with pytest.raises(QueryError, match=message):
            con.sql(JOIN.format(call))
    assert backend.asked == []
