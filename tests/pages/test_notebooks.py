"""The notebooks of `examples/` run from their first cell to their last and show what they show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
TIMED = re.compile(r"\d+(\.\d+)?(?= s\b)|\b\d+\.\d\d\b")
SPACES = re.compile(" {2,}")
"""Between columns, whose width changes with times."""


def read(path: Path) -> Any:
    read: Any = nbformat.read  # has no types
    return read(path, as_version=4)


def shown(notebook: nbformat.NotebookNode) -> list[str]:
    """What the cells print and give, as text; times, widths of columns and warnings aside."""
    texts = []
    for cell in notebook.cells:
        parts = [
            output.get("text") or output.get("data", {}).get("text/plain", "")
            for output in cell.get("outputs", ())
            if output.get("name") != "stderr"
        ]
        texts.append(SPACES.sub(" ", TIMED.sub("0", "".join(parts))))
    return texts


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_gives(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    notebook = read(path)
    before = shown(notebook)
    assert any(before), "run it and save it with its outputs"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": FOLDER}}).execute()
    assert shown(notebook) == before


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_no_warnings_which_name_folders_of_a_machine(path: Path) -> None:
    cells = read(path).cells
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert all(output.get("name") != "stderr" for output in outputs)


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 4
