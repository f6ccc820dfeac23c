"""Answers that no place reads are asked for as far as decides, and the result is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import relquery as rq
from relquery.backends.local.open import load_backend
from relquery.connection import Connection, connect
from relquery.prompt import Compared, Prompt, Sampling
from tests.sql.conftest import opened, upper_or_length
from tests.sql.fakes import FakeBackend
from tests.sql.scripts import Script, scripts


@scripts(__file__)
def test_statements(script: Script, con: Connection, backend: FakeBackend) -> None:
    script.run(con, backend)


def test_where_texts_are_equal_up_to_case_whole_answers_are_compared() -> None:
    backend = FakeBackend(upper_or_length)
    with opened(backend) as con:
        con.sql("SET default_collation = 'nocase'")
        result = con.sql("SELECT id FROM films WHERE LLM('up', title) = 'dune'")
        assert result.fetchall() == [(6,)]
    assert {request.sampling for request in backend.asked} == {Sampling()}


FILTER = "SELECT id FROM films WHERE LLM('up', title) IN ('DUNE', 'ALIEN') ORDER BY id"
READ = "SELECT LLM('up', title) FROM films ORDER BY id"


def test_the_ledger_keeps_what_decided_apart_from_whole_answers(tmp_path: Path) -> None:
    ledger = tmp_path / "answers.db"
    backend = FakeBackend(upper_or_length)
    with opened(backend, ledger=ledger) as con:
        assert con.sql(FILTER).fetchall() == [(1,), (4,), (6,)]
    with opened(backend, ledger=ledger) as con:
        for query, calls in ((FILTER, 0), (READ, 2)):
            (row,) = con.sql(f"EXPLAIN {query}").arrow().to_pylist()
            assert (row["calls"], row["from_ledger"]) == (calls, 4 - calls)
        again = con.sql(FILTER)
        assert again.fetchall() == [(1,), (4,), (6,)]
        assert (again.report.calls, again.report.ledger_hits) == (0, 4)
        read = con.sql(READ)
        assert read.fetchall()[:2] == [("ALIEN",), ("AMELIE",)]
        # Of four titles two were whole, as they are among those that were looked for.
        assert (read.report.calls, read.report.ledger_hits) == (2, 2)
        assert con.sql(FILTER.replace("ALIEN", "AMELIE")).report.calls == 0  # all are whole now


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
