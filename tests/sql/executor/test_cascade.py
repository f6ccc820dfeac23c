"""A proxy decides the clear rows of a call, and its model the rest, as well as was promised."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from relquery.arrays import Float32s
from relquery.connection import Connection, connect
from relquery.errors import QueryError
from relquery.prompt import Answer, Finish
from relquery.retrieval.embedder import Embedder
from tests.sql.fakes import FakeBackend, Fields

ROWS = 400
_RNG = np.random.default_rng(1)
LIKELY = _RNG.beta(0.2, 0.2, ROWS)
TRUE = _RNG.random(ROWS) < LIKELY
FILTER = "AI_FILTER('Good?', text, proxy := 'weak', {})"
BOTH = "precision := 0.8, recall := 0.8"


def number(fields: Fields) -> int:
    return int(fields["text"].split()[1])


def strong(query: str, fields: Fields) -> str:
    return "Yes" if TRUE[number(fields)] else "No"


def weak(query: str, fields: Fields) -> Answer:
    yes = float(LIKELY[number(fields)].clip(1e-9, 1 - 1e-9))
    scores = {"Yes": math.log(yes), "No": math.log(1 - yes)}
    text = "Yes" if yes > 0.5 else "No"
    return Answer(text, Finish.STOP, prompt_tokens=10, output_tokens=1, scores=scores)


def speechless(query: str, fields: Fields) -> Answer:
    return Answer(None, Finish.ERROR, "The server is busy.")


class Knowing(Embedder):
    """Vectors that tell the answer, but for some noise."""

    name = "knowing"

    def embed(self, texts: Sequence[str]) -> Float32s:
        rows = [int(text.split()[1]) for text in texts]
        noise = np.random.default_rng(0).normal(size=(len(rows), 8))
        noise[:, 0] = 4 * TRUE[rows] - 2 + 0.5 * noise[:, 0]
        return noise.astype(np.float32)


class Models:
    """The backends of a connection."""

    def __init__(self) -> None:
        self.strong = FakeBackend(strong, "openai:gpt-5")
        self.weak = FakeBackend(weak, "openai:gpt-5-nano")


@pytest.fixture
def models() -> Models:
    return Models()


@pytest.fixture
def con(models: Models) -> Iterator[Connection]:
    with opened(models) as con:
        yield con


def opened(models: Models, **options: object) -> Connection:
    given: dict[str, object] = {"form": "json", "progress": False, "embedder": Knowing()}
    con = connect(models.strong, models={"weak": models.weak}, **(given | options))  # type: ignore[arg-type]
    con.register("t", pa.table({"id": range(ROWS), "text": [f"row {at}" for at in range(ROWS)]}))
    return con


def ids(con: Connection, condition: str) -> list[int]:
    return [id_ for (id_,) in con.sql(f"SELECT id FROM t WHERE {condition}").fetchall()]


def shares(found: Sequence[int]) -> tuple[float, float]:
    """(precision, recall)."""
    return TRUE[found].mean(), TRUE[found].sum() / TRUE.sum()


def test_a_filter_asks_its_model_less_and_keeps_its_promise(
    con: Connection, models: Models
) -> None:
    result = con.sql(f"SELECT id FROM t WHERE {FILTER.format(BOTH)}")

    asked = len(models.strong.asked)
    assert min(shares([id_ for (id_,) in result.fetchall()])) >= 0.8
    assert asked < 0.6 * ROWS
    assert len(models.weak.asked) == ROWS
    by_model = {name: report.calls for name, report in result.report.by_model.items()}
    assert by_model == {"openai:gpt-5-nano": ROWS, "openai:gpt-5": asked}
    assert all(report.seconds > 0 for report in result.report.by_model.values())
    (note,) = result.report.notes
    assert "precision 0.8, recall 0.8 with confidence 0.95" in note
    assert f"{asked} of {ROWS} calls asked" in note
    assert "USD saved" in note


def test_what_a_proxy_said_is_no_answer_of_the_model(con: Connection, models: Models) -> None:
    ids(con, FILTER.format(BOTH))
    asked = len(models.strong.asked)

    ids(con, FILTER.format(BOTH))
    assert len(models.strong.asked) == asked, "the ledger has its answers"

    assert ids(con, "AI_FILTER('Good?', text)") == np.flatnonzero(TRUE).tolist()
    assert len(models.strong.asked) == ROWS


def test_a_proxy_that_fails_leaves_all_rows_to_the_model(con: Connection, models: Models) -> None:
    models.weak.function = speechless

    assert ids(con, FILTER.format(BOTH)) == np.flatnonzero(TRUE).tolist()
    assert len(models.strong.asked) == ROWS


def test_the_promises_of_a_query_hold_together(con: Connection) -> None:
    condition = f"{FILTER.format(BOTH)} AND {FILTER.format(BOTH).replace('Good', 'Fine')}"

    result = con.sql(f"SELECT id FROM t WHERE {condition}")

    notes = result.report.notes
    assert len(notes) == 2
    assert all("with confidence 0.975" in note for note in notes)


def test_a_limit_does_not_draw_from_a_part_of_the_rows(con: Connection) -> None:
    result = con.sql(f"SELECT id FROM t WHERE {FILTER.format(BOTH)} ORDER BY id LIMIT 3")

    assert len(result) == 3
    assert result.report.stages[-1].rows == ROWS


def test_equal_rows_are_asked_once_and_counted_each(con: Connection, models: Models) -> None:
    result = con.sql(f"SELECT t.id FROM t, range(3) WHERE {FILTER.format(BOTH)}")

    assert len(models.weak.asked) == ROWS
    assert f"of {3 * ROWS:,} rows by the proxy" in result.report.notes[0]
    assert min(shares([id_ for (id_,) in result.fetchall()])) >= 0.8


def test_a_classification_has_an_accuracy(con: Connection, models: Models) -> None:
    call = "AI_CLASSIFY(text, ['Yes', 'No'], proxy := 'weak', accuracy := 0.9)"

    found = con.sql(f"SELECT {call} FROM t ORDER BY id").fetchall()

    assert np.mean([(said == "Yes") == TRUE[at] for at, (said,) in enumerate(found)]) >= 0.9
    assert len(models.strong.asked) < 0.6 * ROWS


def test_a_head_on_embeddings_is_trained_in_the_query(con: Connection, models: Models) -> None:
    found = ids(con, f"AI_FILTER('Good?', text, proxy := 'embedding', {BOTH})")

    assert min(shares(found)) >= 0.8
    assert len(models.strong.asked) < 0.8 * ROWS
    assert not models.weak.asked


def test_a_connection_has_a_default_and_a_call_its_own(models: Models, tmp_path: Path) -> None:
    default = {"proxy": "weak", "precision": 0.8, "recall": 0.8}
    with opened(models, cascade=default, ledger=None) as con:
        by_default = con.sql("SELECT id FROM t WHERE AI_FILTER('Good?', text)").report
        own = con.sql("SELECT id FROM t WHERE AI_FILTER('Good?', text, recall := 0.7)").report
        other = con.sql("SELECT AI_CLASSIFY(text, ['Yes', 'No']) FROM t").report

    assert "precision 0.8, recall 0.8" in by_default.notes[0]
    assert own.notes[0].startswith("filter 1: recall 0.7 with")
    assert [stage.calls for stage in other.stages] == [ROWS]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("AI_FILTER('Good?', text, proxy := 'weak')", "No target is set"),
        ("AI_FILTER('Good?', text, precision := 0.9)", "it must name a model"),
        ("AI_FILTER('Good?', text, proxy := 'weak', recall := 90)", "recall is 90"),
        ("AI_FILTER('Good?', text, proxy := 'embedding', accuracy := 0.9)", "yes from no"),
        ("AI_SCORE('Good?', text, proxy := 'weak') > 0.5", "'proxy'"),
    ],
)
def test_settings_that_cannot_be_cost_nothing(
    con: Connection, models: Models, call: str, said: str
) -> None:
    with pytest.raises(QueryError, match=said):
        ids(con, f"LLM('Fine?', text, labels := ['Yes', 'No']) = 'Yes' AND {call}")

    assert not models.strong.asked
    assert not models.weak.asked


def test_explain_foretells_a_range_that_holds_the_calls(con: Connection, models: Models) -> None:
    query = f"SELECT id FROM t WHERE {FILTER.format(BOTH)}"

    told = con.sql(f"EXPLAIN (COST) {query}").table.to_pylist()
    by_stage = {row["stage"]: row for row in told}
    assert not models.strong.asked
    measured = con.sql(f"EXPLAIN ANALYZE {query}")
    asked, oracle = len(models.strong.asked), by_stage["filter 1"]
    assert oracle["calls_low"] <= asked < oracle["calls_high"] == ROWS
    assert by_stage["filter 1 proxy"]["calls"] == ROWS
    assert set(measured.table["stage"].to_pylist()) == {"filter 1 proxy", "filter 1"}
