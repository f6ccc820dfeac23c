"""Answers that no place reads are asked for as far as decides, and the result is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import relquery as rq
from relquery.backends.local.open import load_backend
from relquery.connection import Connection, connect
from relquery.errors import PartialResultWarning, QueryError
from relquery.prompt import Answer, Compared, Finish, Prompt, Sampling
from tests.sql.conftest import SETUP, upper_or_length
from tests.sql.fakes import FakeBackend, Fields


def samplings(backend: FakeBackend) -> set[Sampling]:
    return {request.sampling for request in backend.asked}


COMPARED = [
    ("SELECT id FROM films WHERE LLM('up', title) = 'DUNE'", ("DUNE",)),
    ("SELECT id FROM films WHERE 'DUNE' = LLM('up', title)", ("DUNE",)),
    ("SELECT id FROM films WHERE LLM('up', title) <> 'DUNE'", ("DUNE",)),
    ("SELECT id FROM films WHERE LLM('up', title) IN ('ALIEN', 'DUNE')", ("ALIEN", "DUNE")),
    ("SELECT id FROM films WHERE NOT (LLM('up', title)) IN ('ALIEN')", ("ALIEN",)),
    ("SELECT id FROM films WHERE LLM('up', title) = 'A' OR LLM('up', title) = 'B'", ("A", "B")),
    ("SELECT count(*) FROM films GROUP BY LLM('up', title) = 'DUNE'", ("DUNE",)),
    ("SELECT LLM('up', title) = 'DUNE' FROM films", ("DUNE",)),
    ("SELECT id FROM films WHERE LLM('up', title) != ''", ("",)),
    ("SELECT sum((LLM('up', title) = 'DUNE')::int) FROM films", ("DUNE",)),
]
READ_WHOLE = [
    "SELECT LLM('up', title) FROM films",
    "SELECT LLM('up', title) FROM films WHERE LLM('up', title) = 'DUNE'",
    "SELECT id FROM films WHERE LLM('up', title) = 'DUNE' ORDER BY LLM('up', title)",
    "SELECT id FROM films WHERE LLM('up', title) = genre",
    "SELECT id FROM films WHERE LLM('up', title) LIKE 'D%'",
    "SELECT id FROM films WHERE LLM('up', title) > 'D'",
    "SELECT id FROM films WHERE lower(LLM('up', title)) = 'dune'",
    "SELECT id FROM films WHERE LLM('up', title) COLLATE nocase = 'dune'",
    "SELECT id FROM films WHERE LLM('up', title) IN (SELECT upper(genre) FROM films)",
    "SELECT id FROM films WHERE LLM('len', title) = 4",
    "SELECT id FROM films WHERE LLM('len', title) IN (4, 5)",
    "SELECT id FROM films WHERE LLM('up', title) IS NOT NULL",
]


def test_what_is_only_compared_with_texts_says_so(con: Connection, backend: FakeBackend) -> None:
    for query, texts in COMPARED:
        con.sql(query)
        assert samplings(backend) == {Compared(texts=texts)}, query
        backend.asked.clear()


def test_what_some_place_reads_is_asked_for_whole(con: Connection, backend: FakeBackend) -> None:
    for query in READ_WHOLE:
        con.sql(query)
        assert samplings(backend) == {Sampling()}, query
        backend.asked.clear()


def test_methods_and_arrows_read_whole_answers(con: Connection, backend: FakeBackend) -> None:
    texts = "(SELECT title AS t FROM films)"
    for query in (
        f"SELECT LLM('up', t).lower() FROM {texts} WHERE LLM('up', t) <> 'A'",
        f"SELECT count(*) FROM {texts} WHERE LLM('up', t) <> 'A' AND LLM('up', t).contains('UN')",
        f"SELECT t FROM {texts} WHERE LLM('up', t) <> 'A' ORDER BY LLM('up', t).length(), t",
        f"SELECT LLM('len', LLM('up', t).lower()) FROM {texts} WHERE LLM('up', t) <> 'A'",
        "SELECT coalesce(LLM('up', t) -> '$.A', '0'), LLM('up', t) = 'A' "
        "FROM (SELECT '{\"A\": ' || id || '}' AS t FROM films)",
        "SELECT date_trunc(LLM('up', t), DATE '2020-05-17'), LLM('up', t) = 'A' "
        "FROM (SELECT 'month' AS t)",
    ):
        con.sql(query)
        assert {one.sampling for one in backend.asked if one.query == "up"} == {Sampling()}, query
        backend.asked.clear()


def test_an_answer_that_is_a_field_is_read(con: Connection, backend: FakeBackend) -> None:
    con.sql(
        "SELECT id FROM films WHERE LLM('yes', LLM('up', title)) = 'Yes' "
        "AND LLM('No', title, labels := ['Yes', 'No']) = 'No'"
    )
    by_query = {request.query: request.sampling for request in backend.asked}
    labelled = Sampling(labels=("Yes", "No"))
    assert by_query == {"up": Sampling(), "yes": Compared(texts=("Yes",)), "No": labelled}


def test_where_texts_are_equal_up_to_case_whole_answers_are_compared() -> None:
    backend = FakeBackend(upper_or_length)
    with connect(backend, ledger=None) as con:
        con.database.execute(SETUP)
        con.sql("SET default_collation = 'nocase'")
        result = con.sql("SELECT id FROM films WHERE LLM('up', title) = 'dune'")
        assert result.fetchall() == [(6,)]
    assert samplings(backend) == {Sampling()}


FILTER = "SELECT id FROM films WHERE LLM('up', title) IN ('DUNE', 'ALIEN') ORDER BY id"
READ = "SELECT LLM('up', title) FROM films ORDER BY id"


def test_the_ledger_keeps_what_decided_apart_from_whole_answers(tmp_path: Path) -> None:
    ledger = tmp_path / "answers.db"
    backend = FakeBackend(upper_or_length)
    with connect(backend, ledger=ledger) as con:
        con.database.execute(SETUP)
        assert con.sql(FILTER).fetchall() == [(1,), (4,), (6,)]
    with connect(backend, ledger=ledger) as con:
        con.database.execute(SETUP)
        for query, calls in ((FILTER, 0), (READ, 3)):
            (row,) = con.sql(f"EXPLAIN {query}").arrow().to_pylist()
            assert (row["calls"], row["from_ledger"]) == (calls, 5 - calls)
        again = con.sql(FILTER)
        assert again.fetchall() == [(1,), (4,), (6,)]
        assert (again.report.calls, again.report.ledger_hits) == (0, 5)
        read = con.sql(READ)
        assert read.fetchall()[:2] == [("ALIEN",), ("AMELIE",)]
        # Of five titles two were whole, as they are among those that were looked for.
        assert (read.report.calls, read.report.ledger_hits) == (3, 2)
        assert con.sql(FILTER.replace("ALIEN", "AMELIE")).report.calls == 0  # all are whole now


def test_an_answer_that_is_too_long_is_not_the_text(con: Connection, backend: FakeBackend) -> None:
    def long_for_dune(query: str, fields: Fields) -> str | Answer:
        if fields["title"] == "Dune":
            return Answer("Dune is", Finish.DECIDED, output_tokens=2)
        return Answer("Alien is a", Finish.LENGTH, output_tokens=3)

    backend.function = long_for_dune
    with pytest.warns(PartialResultWarning, match="1 LLM value is missing"):
        found = con.sql("SELECT id FROM films WHERE id IN (1, 6) AND LLM('q', title) <> 'Yes'")
    assert found.fetchall() == [(6,)]


class Whole:
    """The same backend, that is never told what its answers are compared with."""

    def __init__(self, backend: object) -> None:
        self.backend, self.name = backend, "whole"

    def answer(self, prompts: list[Prompt], sampling: Sampling) -> object:
        whole = sampling.whole if isinstance(sampling, Compared) else sampling
        return self.backend.answer(prompts, whole)  # type: ignore[attr-defined]

    def close(self) -> None:
        pass


QUESTIONS = [
    "LLM('Is the review positive?', reviewcontent) = 'Yes'",
    "LLM('Is the review positive?', reviewcontent) <> 'No'",
    "LLM('Is the review positive?', reviewcontent, temperature := 1.0, seed := 3) = 'Yes'",
    "LLM('Which genre?', movieinfo) IN ('drama', 'comedy', 'a drama')",
    "LLM('Which genre?', movieinfo, max_tokens := 1) <> 'drama'",
    "LLM('Summarise it.', reviewcontent, max_tokens := 24) <> 'A good film.'",
    "LLM('Summarise it.', reviewcontent, stop := [' ', '.']) = 'The'",
]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::relquery.errors.PartialResultWarning")
def test_a_real_model_decides_as_its_whole_answers_do() -> None:
    backend = load_backend("demo", cache_tokens=16_384)
    rows, tokens = {}, {}
    both: list[tuple[str, Any]] = [("compared", backend), ("whole", Whole(backend))]
    for kind, one in both:
        with connect(one, ledger=None) as con:
            con.register("films", rq.demo_table("movies"))
            for question in QUESTIONS:
                query = f"SELECT movietitle, {question} FROM films LIMIT 24"
                result = con.sql(query)
                rows[kind, question] = result.fetchall()
                tokens[kind, question] = result.report.output_tokens
                assert kind == "whole" or result.report.errors == 0 or "max_tokens" in question
    backend.close()
    for question in QUESTIONS:
        pairs = zip(rows["compared", question], rows["whole", question], strict=True)
        # What is too long to be whole has no value, unless it is known not to be the text.
        differ = [one for one, other in pairs if one != other and other[1] is not None]
        assert not differ
        assert "max_tokens" in question or rows["compared", question] == rows["whole", question]
        assert tokens["compared", question] <= tokens["whole", question]
    spared = QUESTIONS[3], QUESTIONS[5]
    assert all(tokens["compared", each] < tokens["whole", each] for each in spared)


CONDITIONS = ["k <> 'x'", "k = 'Dune' OR k = 'x'", "k IN ('x', 'y')"]


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        *zip(["EXCEPT ALL", "UNION ALL", "INTERSECT"], CONDITIONS, strict=True),
        *(pytest.param(kind, condition, marks=pytest.mark.long)
          for kind in ("UNION ALL", "EXCEPT ALL", "INTERSECT") for condition in CONDITIONS),
    ],
)  # fmt: skip
def test_a_value_of_a_set_operation_may_be_no_label(
    kind: str, condition: str, con: Connection
) -> None:
    labelled = "SELECT LLM('yes', title, labels := ['Yes', 'No']) FROM films"
    query = f"SELECT * FROM (SELECT title AS k FROM films {kind} {labelled}) WHERE {condition}"
    plain = f"SELECT title AS k FROM films {kind} SELECT 'Yes' FROM films"
    values = con.sql(f"SELECT * FROM ({plain}) WHERE {condition}").fetchall()
    found = con.sql(query).fetchall()
    assert sorted(row for row in found if row[0] not in {"Yes", "No"}) == sorted(
        row for row in values if row[0] not in {"Yes", "No"}
    )


def test_a_text_that_is_no_label_is_refused(con: Connection, backend: FakeBackend) -> None:
    labelled = "SELECT LLM('yes', title, labels := ['Yes', 'No']) AS k FROM films"
    with pytest.raises(QueryError, match=r"compared with 'yes', but .* Did you mean 'Yes'\?"):
        con.sql(f"SELECT * FROM ({labelled}) WHERE k = 'yes'")
    assert backend.asked == []
