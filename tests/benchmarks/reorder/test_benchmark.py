"""The reorder benchmark measures what it can, and its document says what was missed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import catalogue
from benchmarks.__main__ import main
from benchmarks.harness import Benchmark, Figure, Settings, document
from benchmarks.reorder import benchmark as bench
from benchmarks.reorder import document as reorder_document
from benchmarks.reorder.document import Results
from benchmarks.reorder.growth import Growth
from benchmarks.reorder.tables import TABLES

GROWN = [Growth(1_000, 0.01, 0.1, 0.05, 0.4), Growth(2_000, 0.02, 0.22, 0.1, 0.5)]


def described(figures: list[Figure]) -> dict[str, object]:
    return document(Benchmark("reorder", "", lambda settings, say: iter(())), SETTINGS, figures)


SETTINGS = Settings(quick=False, data=Path("nowhere"))


def test_the_document_shows_what_was_missed_and_its_pictures(tmp_path: Path) -> None:
    results = Results(growth=GROWN)
    said: list[str] = []
    figures = [Figure("slow", 2.0, 1.0, at_least=False, note="twice"), Figure("x", None, 1.0)]
    reorder_document.write(tmp_path, results, described(figures), 7, said.append)
    text = (tmp_path / "reorder.md").read_text(encoding="utf-8")
    assert "| `slow` | 2 | <= 1 | **no** | twice |" in text
    assert "| `x` | - | >= 1 | not measured |" in text
    assert "seed 7" in text
    assert "(reorder_growth.png)" in text
    assert (tmp_path / "reorder_growth.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "reorder_gain.png").read_bytes().startswith(b"\x89PNG")
    assert len(said) == 3


def test_without_matplotlib_the_document_has_no_picture_and_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said: list[str] = []
    reorder_document.write(tmp_path, Results(growth=GROWN), described([]), 0, said.append)
    assert ".png" not in (tmp_path / "reorder.md").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["reorder.md"]
    assert "pip install relquery[bench]" in said[0]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK_SIZES", (50, 100))


def test_without_tables_the_benchmark_measures_the_rest_and_says_what_is_absent(
    tiny: None, tmp_path: Path
) -> None:
    run = Settings(quick=True, data=tmp_path / "absent", write=tmp_path / "out")
    figures = {figure.name: figure for figure in bench.run(run, lambda text: None)}
    assert all(figure.value is None for figure in figures.values())
    for table in TABLES:
        assert table.file in figures[f"{table.name}_seconds"].note
    assert "for up to 100 rows" in figures["million_rows_gib"].note
    assert (tmp_path / "out" / "reorder.md").exists()


@pytest.mark.parametrize(
    ("options", "written"),
    [((), "docs/benchmarks"), (("--quick",), None), (("--quick", "--write", "here"), "here")],
)
def test_documents_go_where_the_project_keeps_them_unless_told_otherwise(
    options: tuple[str, ...], written: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path | None] = []

    def run(settings: Settings, say: object) -> Iterator[Figure]:
        seen.append(settings.write)
        yield Figure("x", 1.0, 1.0)

    (tmp_path / "docs" / "benchmarks").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogue, "BENCHMARKS", (Benchmark("fake", "", run),))
    monkeypatch.setattr(sys, "argv", ["scripts/bench", "fake", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert seen == [Path(written) if written else None]
