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


def shown(notebook: nbformat.NotebookNode) -> list[str]:
    """What the cells print and give, as text; times and widths of columns aside."""
    texts = []
    for cell in notebook.cells:
        parts = [
            output.get("text") or output.get("data", {}).get("text/plain", "")
            for output in cell.get("outputs", ())
            if output.get("name") != "stderr"  # warnings
        ]
        texts.append(SPACES.sub(" ", TIMED.sub("0", "".join(parts))))
    return texts


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_gives(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    before = shown(notebook)
    assert any(before), "run it and save it with its outputs"
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    kept = "it keeps warnings, which name folders of a machine"
    assert all(output.get("name") != "stderr" for output in outputs), kept
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": FOLDER}}).execute()
    assert shown(notebook) == before


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 4
