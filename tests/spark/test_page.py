"""What the page on Spark shows runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.standin.server import serving
from benchmarks.standin.wires.openai_chat import completion
from tests.spark.conftest import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


@pytest.mark.filterwarnings("ignore")
def test_the_page_runs_from_top_to_bottom(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    text = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    with serving(lambda body: completion("Yes")) as chat:
        monkeypatch.setenv("OPENAI_BASE_URL", chat.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        exec(compile(code, "<spark.md>", "exec"), {})
    assert chat.asked
    printed = capsys.readouterr().out
    assert "movietitle|summary" in re.sub(r" *\| *", "|", printed)
    assert "filter 1" in printed
    assert any((tmp_path / "answers").glob("*.answers"))
