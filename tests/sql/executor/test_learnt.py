"""It is said where a stage has told no row from another."""

from __future__ import annotations

from collections.abc import Callable
from math import log

import pytest

from relquery.connection import connect
from relquery.prompt import Answer, Finish
from tests.sql.fakes import FakeBackend, Fields

ROWS = "(SELECT i::VARCHAR AS text FROM range({}) t(i))"


def says(*answers: str) -> Callable[[str, Fields], str]:
    return lambda query, fields: answers[int(fields["text"]) % len(answers)]


def likely(low: float, high: float, rows: int = 60) -> Callable[[str, Fields], Answer]:
    """Scores that go from one to another."""

    def answer(query: str, fields: Fields) -> Answer:
        yes = low + (high - low) * int(fields["text"]) / (rows - 1)
        return Answer("Yes", Finish.STOP, scores={"Yes": log(yes), "No": log(1 - yes)})

    return answer


def notes(function: object, query: str) -> list[str]:
    with connect(FakeBackend(function), ledger=None) as con:  # type: ignore[arg-type]
        result = con.sql(query)
        assert all(
            note in repr(result) and note in str(result.report) for note in result.report.notes
        )
        analysed = con.sql(f"EXPLAIN ANALYZE {query}")
        assert [note for note in analysed.table["note"].to_pylist() if note] == [
            note.partition(": ")[2] for note in result.report.notes
        ]
        return result.report.notes


FILTER = f"SELECT text FROM {ROWS} WHERE AI_FILTER('x', text)"
SCORE = f"SELECT AI_SCORE('x', text) FROM {ROWS}"


@pytest.mark.parametrize(
    ("answers", "query", "expected"),
    [
        (["Yes"], FILTER.format(60), "filter 1: all 60 rows have the same answer (Yes)"),
        (["No"], FILTER.format(60), "filter 1: all 60 rows have the same answer (No)"),
        (["Yes"], FILTER.format(49), None),
        (["Yes"] * 59 + ["No"], FILTER.format(60), None),
        (["Yes", "silence"], f"SELECT text FROM {ROWS} WHERE LLM('x', text) = 'No'".format(60),
         "filter 1: all 60 rows have the same answer (another text)"),
        (["a"], f"SELECT AI_CLASSIFY(text, ['a', 'b']) FROM {ROWS}".format(60),
         "projection 1: all 60 rows have the same answer (a)"),
        (["free text"], f"SELECT LLM('x', text) FROM {ROWS}".format(60), None),
        (["Yes"], f"SELECT AI_FILTER('x', text) FROM (SELECT '7' AS text FROM {ROWS})".format(60),
         None),
    ],
)  # fmt: skip
def test_one_answer_for_fifty_inputs_or_more(
    answers: list[str], query: str, expected: str | None
) -> None:
    found = notes(says(*answers), query)
    assert len(found) == (expected is not None)
    assert not expected or found[0].startswith(expected)


@pytest.mark.parametrize(
    ("low", "high", "is_told"), [(0.9, 0.98, True), (0.01, 0.1, True), (0.4, 0.52, False)]
)
def test_scores_within_a_tenth_of_their_range(low: float, high: float, is_told: bool) -> None:
    found = notes(likely(low, high), SCORE.format(60))
    assert bool(found) is is_told
    assert not is_told or f"all 60 scores are between {low:.3g} and {high:.3g}" in found[0]


def test_a_threshold_is_that_of_the_score_in_one_request() -> None:
    query = (
        f"SELECT AI_FILTER('x', text, threshold := 0.3) AS kept, AI_SCORE('x', text) AS score "
        f"FROM {ROWS.format(60)}"
    )
    with connect(FakeBackend(likely(0.1, 0.9)), ledger=None) as con:
        result = con.sql(query)
        kept = con.sql(
            f"SELECT count(*) FROM {ROWS.format(60)} WHERE AI_FILTER('x', text, threshold := 0.3)"
        )
    assert result.report.calls == 60
    assert all(kept is (score >= 0.3) for kept, score in result.fetchall())
    assert kept.fetchall() == [(sum(score >= 0.3 for _, score in result.fetchall()),)]
