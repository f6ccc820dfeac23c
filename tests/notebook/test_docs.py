"""The cells of the page about notebooks run in IPython, from top to bottom."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "notebook.md"
CELLS = re.findall(r"^```ipython\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def test_the_cells_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)  # IPython warns if it is another one
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    make: Any = InteractiveShell
    shell = make()
    shell.history_manager.enabled = False
    with redirect_stdout(io.StringIO()):
        for cell in CELLS:
            shell.run_cell(cell).raise_error()
    assert [title for title, _ in shell.user_ns["found"]] == ["A", "B"]
    shell.user_ns["con"].close()
    shell.history_manager.end_session()
