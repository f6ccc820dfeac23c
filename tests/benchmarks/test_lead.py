"""What pages of benchmarks lead with: figures that they have, written again without a change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks import lead

PAGES = Path(__file__).parents[2] / "docs/benchmarks"


def test_every_lead_is_on_its_page_and_in_the_index(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    copy = tmp_path / "benchmarks"
    shutil.copytree(PAGES, copy)
    for name, given in lead._read().items():
        path = copy / f"{name}.md"
        page = path.read_text(encoding="utf-8")
        assert len(lead.rows(name, page)) == len(given["rows"]), name
        lead.write(path, lambda text: None)
        assert path.read_text(encoding="utf-8") == page
    lead.write_index(copy)
    assert (copy / "index.md").read_text() == (PAGES / "index.md").read_text()


def test_a_result_is_said_in_words_and_compared() -> None:
    page = "| figure | value |\n|---|---|\n| `both_calls` | 0.5 |\n| `recall_calls` | 0.25 |\n"
    found = lead.rows("cascade", page)
    assert [row.said for row in found] == ["0.5 of them", "0.25 of them"]
    assert [row.times for row in found] == [2, 4]
