"""A benchmark's quick run, and tables in place of the real ones."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest

from benchmarks.harness import Benchmark, Figure, Settings


class Quick(Protocol):
    def __call__(
        self, benchmark: Benchmark, *parts: str, data: Path | None = None
    ) -> tuple[dict[str, Figure], str]: ...


@pytest.fixture(autouse=True)
def form_of_users(users_form: None) -> None:
    """Benchmarks run as users run them, with the form of prompts that they get."""


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Quick:
    """Runs a benchmark, or parts of it; gives its figures and its page, in `tmp_path`."""
    monkeypatch.setattr("benchmarks.stock.set_threads", lambda count: None)

    def run(
        benchmark: Benchmark, *parts: str, data: Path | None = None
    ) -> tuple[dict[str, Figure], str]:
        settings = Settings(True, data or tmp_path, threads=1, parts=parts, write=tmp_path)
        figures = {figure.name: figure for figure in benchmark.start(settings, lambda text: None)}
        name = benchmark.name.replace("-", "_")
        page = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
        assert not re.search(r"\{\w", page), "all is filled in"
        marks = [line for line in page.splitlines() if line.startswith("<!-- part")]
        assert marks == [f"<!-- part: {part} -->" for part in parts or benchmark.parts]
        return figures, page

    return run


def by_name(figures: Iterable[Figure]) -> dict[str, Any]:
    """The values of figures."""
    return {figure.name: figure.value for figure in figures}


def films(rows: int = 20) -> pa.Table:
    """Reviews, each with its film's long description."""
    films = [row % 3 for row in range(rows)]
    return pa.table(
        {
            "reviewcontent": [
                f"{row} is a review unlike any other, at length." for row in range(rows)
            ],
            "reviewtype": ["Fresh" if film else "Rotten" for film in films],
            "movietitle": [f"film {film}" for film in films],
            "movieinfo": [f"All about the film {film}, and much of it. " * 4 for film in films],
            "genres": ["Drama"] * rows,
        }
    )
