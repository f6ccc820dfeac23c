"""A report adds its stages up, and shows them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from relquery.report import Report, StageReport, in_digits

STAGE = StageReport(
    name="filter 1",
    expression="llm('x', a)",
    rows=10,
    calls=8,
    ledger_hits=1,
    prompt_tokens=100,
    cached_tokens=75,
    output_tokens=8,
    attempts=9,
    errors=2,
    seconds=1.5,
    solver_seconds=0.5,
    order="ggr",
    phr=0.8,
)
REPORT = Report((STAGE, replace(STAGE, name="projection 1", cached_tokens=25)), 4.0)


def test_totals_are_sums_over_stages() -> None:
    assert (REPORT.calls, REPORT.ledger_hits, REPORT.prompt_tokens) == (16, 2, 200)
    assert (REPORT.cached_tokens, REPORT.output_tokens, REPORT.errors) == (100, 16, 4)
    assert (REPORT.solver_seconds, REPORT.hit_rate, STAGE.hit_rate) == (1.0, 0.5, 0.75)


def test_a_query_without_calls_has_a_hit_rate_of_zero() -> None:
    assert Report().hit_rate == 0


def test_a_report_goes_to_json_and_back() -> None:
    data = json.loads(json.dumps(REPORT.to_dict()))
    assert data["seconds"] == 4.0
    assert [stage["name"] for stage in data["stages"]] == ["filter 1", "projection 1"]


def test_a_report_shows_one_line_per_stage_in_text() -> None:
    lines = str(REPORT).split("\n")
    assert len(lines) == 3
    headings = ["stage", "rows", "calls", "from", "ledger", "prompt", "cached", "output", "errors"]
    assert lines[0].split() == [*headings, "seconds", "order"]
    cells = ["filter", "1", "10", "8", "1", "100", "75", "(75%)", "8", "2", "1.50", "ggr"]
    assert lines[1].split() == cells
    assert REPORT.title == "16 LLM calls in 4.00 s, ggr order"


def test_a_report_leaves_out_columns_of_what_did_not_happen() -> None:
    usual = Report((replace(STAGE, errors=0, ledger_hits=0),), 1.0)
    heading = str(usual).split("\n")[0]
    assert "errors" not in heading
    assert "ledger" not in heading


GUARDED = replace(STAGE, agreement=0.84, compared=50, order="pinned: agreement 0.84 of 50")


def test_an_agreement_has_an_interval_that_is_wide_for_few_rows() -> None:
    assert STAGE.agreement_interval is None
    assert GUARDED.agreement_interval == pytest.approx((0.7149, 0.9166), abs=1e-4)
    low, high = replace(GUARDED, agreement=1.0, compared=10).agreement_interval or (0, 0)
    assert low == pytest.approx(0.7225, abs=1e-4)
    assert high == 1
    none = replace(GUARDED, agreement=0.0, compared=10)
    assert none.agreement_interval == pytest.approx((0, 0.2775), abs=1e-4)


def test_an_agreement_is_shown_in_text_and_in_json() -> None:
    report = Report((STAGE, GUARDED), 1.0)
    assert "agreement" not in str(REPORT)
    assert "0.84 of 50 (0.71 to 0.92)" in str(report)
    assert str(report).endswith("pinned: agreement 0.84 of 50")
    assert "ggr and pinned order" in report.title
    certain = replace(GUARDED, agreement=1.0, compared=1536)
    assert "1.00 of 1536 (0.99 to 1.00)" in str(Report((certain,), 1.0))
    plain, guarded = json.loads(json.dumps(report.to_dict()))["stages"]
    assert (plain["agreement"], plain["compared"], plain["agreement_interval"]) == (None,) * 3
    assert (guarded["agreement"], guarded["compared"]) == (0.84, 50)
    assert len(guarded["agreement_interval"]) == 2


def test_an_agreement_is_rounded_down_so_that_1_means_that_all_answers_are_the_same() -> None:
    assert in_digits(0.9999) == "0.99"
    assert [in_digits(each / 100) for each in (29, 57, 58, 100)] == ["0.29", "0.57", "0.58", "1.00"]


def test_a_stage_that_asks_again_keeps_the_agreement_of_its_first_rows() -> None:
    more = replace(GUARDED, agreement=None, compared=None)
    assert (GUARDED.plus(more).agreement, GUARDED.plus(more).compared) == (0.84, 50)
    later = STAGE.plus(GUARDED)  # no field moved in the first rows
    assert (later.agreement, later.compared, later.is_pinned) == (0.84, 50, True)
    assert not STAGE.is_pinned


def test_a_report_sums_up_in_a_line_and_shows_a_table_in_a_notebook() -> None:
    report = Report((replace(STAGE, name="filter <1>"),), 2.0)
    assert report.summary == (
        "8 calls and 1 from the ledger, 100 prompt tokens (75% cached), 8 output tokens, 2.00 s"
    )
    html = report._repr_html_()
    assert "<td>filter &lt;1&gt;</td>" in html
    assert f"<p>{report.summary}</p>" in html
