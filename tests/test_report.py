"""A report adds its stages up, and shows them."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from relquery.report import Report, StageReport

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


def test_totals_are_sums_over_stages():
    assert (REPORT.calls, REPORT.ledger_hits, REPORT.prompt_tokens) == (16, 2, 200)
    assert (REPORT.cached_tokens, REPORT.output_tokens, REPORT.errors) == (100, 16, 4)
    assert (REPORT.solver_seconds, REPORT.hit_rate, STAGE.hit_rate) == (1.0, 0.5, 0.75)


def test_a_query_without_calls_has_a_hit_rate_of_zero():
    assert Report().hit_rate == 0


def test_a_report_goes_to_json_and_back():
    data = json.loads(json.dumps(REPORT.to_dict()))
    assert data["seconds"] == 4.0
    assert [stage["name"] for stage in data["stages"]] == ["filter 1", "projection 1"]


def test_a_report_shows_one_line_per_stage_in_text_and_in_a_terminal():
    lines = str(REPORT).split("\n")
    assert len(lines) == 3
    headings = ["stage", "rows", "calls", "from", "ledger", "prompt", "cached", "output", "errors"]
    assert lines[0].split() == [*headings, "seconds", "order"]
    cells = ["filter", "1", "10", "8", "1", "100", "75", "(75%)", "8", "2", "1.50", "ggr"]
    assert lines[1].split() == cells
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(REPORT)
    shown = console.export_text()
    assert "16 LLM calls in 4.00 s, ggr order" in shown
    assert "projection 1" in shown


def test_a_report_leaves_out_columns_of_what_did_not_happen():
    usual = Report((replace(STAGE, errors=0, ledger_hits=0),), 1.0)
    heading = str(usual).split("\n")[0]
    assert "errors" not in heading
    assert "ledger" not in heading


def test_a_large_report_fits_a_terminal_of_80_columns():
    large = replace(STAGE, name="projection 12", rows=1_000_000, calls=1_000_000)
    large = replace(large, prompt_tokens=99_000_000, cached_tokens=88_000_000, seconds=9999.0)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(Report((replace(large, ledger_hits=0, errors=0),), 1.0))
    assert "…" not in console.export_text()
