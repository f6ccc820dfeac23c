"""Personal data of cells is in no prompt and no ledger, and is in the answers of its row."""

from __future__ import annotations

from pathlib import Path

from relquery.connection import connect
from tests.sql.fakes import FakeBackend, Fields

ROWS = """CREATE TABLE calls AS FROM (VALUES
    (1, 'Anna Berger', 'Anna Berger called from 0221/471023.'),
    (2, 'Marc Dubois', 'Marc Dubois called from 06 12 34 56 78.'),
    (3, NULL, 'Nobody called.')) t(id, full_name, note)"""
DATA = ("Anna", "Berger", "Marc", "Dubois", "471023", "34 56")


def echo(query: str, fields: Fields) -> str:
    return f"{fields['full_name']}: {fields['note']}"


def test_a_connection_redacts_all_calls_and_its_ledger_holds_no_data(tmp_path: Path) -> None:
    ledger, backend = tmp_path / "answers.db", FakeBackend(echo)
    query = "SELECT LLM('Echo', full_name, note) AS said FROM calls ORDER BY id"
    for calls in (2, 0):  # the second connection finds the answers in the ledger
        with connect(backend, ledger=ledger, redact=True, form="json") as con:
            con.sql(ROWS)
            (planned,) = con.explain(query).calls
            assert planned.calls == calls
            result = con.sql(query)
            assert result.report.calls == calls
            assert result.fetchall() == [
                ("Anna Berger: Anna Berger called from 0221/471023.",),
                ("Marc Dubois: Marc Dubois called from 06 12 34 56 78.",),
                ("None: Nobody called.",),
            ]
    said = "".join(str(one.prompt) for one in backend.asked)
    assert "[NAME_1] called from [PHONE_NUMBER_1]" in said
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir()).decode(errors="replace")
    for data in DATA:
        assert data not in said
        assert data not in kept


def test_a_query_may_redact_or_not_whatever_the_connection_does() -> None:
    backend = FakeBackend(lambda query, fields: "Yes")
    query = "SELECT LLM('Echo', note) FROM calls WHERE id = 1"
    with connect(backend, ledger=None, redact=["NAME"], form="json") as con:
        con.sql(ROWS)
        con.sql(query, redact=True)
        con.sql(query, redact=False)
        con.preview(query, redact=["PHONE_NUMBER"])
        assert con.explain(query, redact=True).calls[0].calls == 1
        assert [one.fields["note"] for one in backend.asked] == [
            "[NAME_1] called from [PHONE_NUMBER_1].",
            "Anna Berger called from 0221/471023.",
            "Anna Berger called from [PHONE_NUMBER_1].",
        ]


def test_a_prompt_that_is_an_expression_keeps_its_words() -> None:
    backend = FakeBackend(lambda query, fields: query)
    with connect(backend, ledger=None, redact=True, form="json") as con:
        con.sql(ROWS)
        result = con.sql("SELECT LLM('Write to ' || full_name, id) FROM calls WHERE id = 1")
        assert result.fetchall() == [("Write to Anna Berger",)]
        assert [one.query for one in backend.asked] == ["Write to [NAME_1]"]


def test_a_call_may_be_left_out_and_a_filter_and_a_page_work(tmp_path: Path) -> None:
    backend = FakeBackend(lambda query, fields: "Yes")
    with connect(backend, ledger=None, redact=["NAME"], form="json") as con:
        con.sql(ROWS)
        con.sql("SELECT LLM('Echo', note, redact := false) FROM calls WHERE id = 1")
        assert backend.asked[-1].fields == {"note": "Anna Berger called from 0221/471023."}
        filtered = con.sql("SELECT id FROM calls WHERE AI_FILTER('Ok?', note)", record=True)
        assert len(filtered) == 3
        asked = [one.fields["note"] for one in backend.asked[1:]]
        assert "[NAME_1] called from 0221/471023." in asked
        filtered.write_html(tmp_path / "run.html")
    assert "Berger" not in (tmp_path / "run.html").read_text()


def test_texts_are_compared_by_what_the_report_says() -> None:
    with connect(FakeBackend(echo), ledger=None, embedder="tfidf") as con:
        query = "SELECT AI_SIMILARITY('cat', 'cats'), len(AI_EMBED('cat')), AI_EMBED(NULL)"
        result = con.sql(query)
        assert result.report.compared_by == "AI_EMBED, AI_SIMILARITY by spelling"
        assert str(result.report) == "AI_EMBED, AI_SIMILARITY by spelling"
        ((near, size, none),) = result.fetchall()
        assert -1 <= near <= 1
        assert (size, none) == (1024, None)
        assert con.sql("SELECT 1").report.compared_by == ""
        assert "compared_by" not in con.sql("SELECT 1").report.to_dict()
