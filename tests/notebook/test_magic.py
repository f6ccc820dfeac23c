"""`%load_ext relquery` lets cells of IPython and Jupyter hold SQL with LLM calls."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient

import relquery as rq
from relquery.connection import connect
from relquery.sql.result import Result
from tests.cases import case_file
from tests.sql.conftest import SETUP, fails_for_dune
from tests.sql.fakes import FakeBackend

_Shell: Any = InteractiveShell
_v4: Any = nbformat.v4
ROOT = Path(__file__).parents[2]
Run = Callable[[str], Any]
Fails = Callable[[str], str]


@pytest.fixture(scope="module")
def ipython(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("VIRTUAL_ENV", raising=False)  # IPython warns if it is another one
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        patch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # which a shell replaces
        shell = _Shell()
        shell.history_manager.enabled = False
        shell.displayhook.do_full_cache = False  # emptying it collects garbage, which takes long
        yield shell
        shell.history_manager.end_session()
        shell.atexit_operations = lambda: None


@pytest.fixture(scope="module")
def con() -> Iterator[rq.Connection]:
    with connect(FakeBackend(fails_for_dune)) as con:
        con.database.execute(SETUP)
        yield con


@pytest.fixture
def shell(ipython: Any, con: rq.Connection) -> Any:
    """A shell with the extension, and a connection in the variable `con`."""
    ipython.reset(new_session=False)
    ipython.extension_manager.loaded.discard("relquery")
    ipython.run_line_magic("load_ext", "relquery")
    ipython.push({"con": con})
    return ipython


@pytest.fixture
def run(shell: Any) -> Run:

    def run(cell: str) -> Any:
        with redirect_stdout(io.StringIO()):
            found = shell.run_cell(cell)
        found.raise_error()
        return found.result

    return run


@pytest.fixture
def fails(shell: Any) -> Fails:
    """Runs a cell that fails; gives all that is shown."""

    def fails(cell: str) -> str:
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            found = shell.run_cell(cell)
        assert not found.success
        return printed.getvalue()

    return fails


def test_a_cell_of_sql_gives_its_result_and_binds_it(run: Run) -> None:
    query = "SELECT LLM('up', title) FROM films"
    found = run(f"%%relquery --out loud\n{query} WHERE id < 3 ORDER BY id")
    assert isinstance(found, Result)
    assert found.fetchall() == [("ALIEN",), ("AMELIE",)]
    assert run("loud") is found
    assert run(f"%relquery --explain {query}").calls[0].rows == 6
    assert isinstance(run(f"%%relquery --preview\n{query} WHERE id < 3"), rq.Preview)


def test_a_line_is_read_like_a_cell_and_keeps_its_quotes(run: Run, shell: Any) -> None:
    assert run("%relquery SELECT 'it''s' -- done").fetchall() == [("it's",)]
    assert run('x = %relquery --order original SELECT "id" FROM films LIMIT 1\nlen(x)') == 1
    evil = "'up', title) AS x, 'evil' AS evil, upper('b'"
    shell.push({"ask": evil, "title": "PYTHON"})
    query = "SELECT LLM($ask, title), LLM('up {title}') FROM films WHERE id = 1"
    line, cell = run(f"%relquery {query}"), run(f"%%relquery\n{query}")
    assert len(line.columns) == 2
    assert line.fetchall() == cell.fetchall()
    assert not any("PYTHON" in str(one) for one in shell.user_ns["con"].backend.asked)


def test_parameters_are_variables_and_never_become_sql(run: Run) -> None:
    run("ask, odd = 'up', \"x' OR 1=1 --\"")
    found = run("%%relquery\nSELECT $odd, LLM($ask, title) FROM films WHERE id = 1")
    assert found.fetchall() == [("x' OR 1=1 --", "ALIEN")]


def test_frames_are_tables_of_their_names(shell: Any, run: Run) -> None:
    query = "%%relquery\nSELECT LLM('up', f.word) FROM words AS f"
    for kind in (pd.DataFrame, pl.DataFrame, pa.table):
        shell.push({"words": kind({"word": ["one"]})})
        assert run(query).fetchall() == [("ONE",)]
        shell.push({"words": kind({"word": ["two"]})})
        assert run(query).fetchall() == [("TWO",)], "the variable as it is now"
        assert "words" not in shell.user_ns["con"].tables()


def test_tables_come_before_variables(shell: Any, run: Run) -> None:
    frame = pd.DataFrame({"id": [77]})
    shell.push({"films": frame, "entry": frame, "made": frame})
    assert len(run("%relquery SELECT id FROM films")) == 6
    assert run("%relquery WITH entry AS (SELECT 5 AS id) SELECT id FROM entry").fetchall() == [(5,)]
    run("%relquery CREATE TABLE made AS SELECT 1 AS a; SELECT a FROM made")
    assert run("%relquery SELECT a FROM made").fetchall() == [(1,)]


def test_the_cells_of_the_page_run(ipython: Any) -> None:
    ipython.reset(new_session=False)
    ipython.extension_manager.loaded.discard("relquery")
    text = (ROOT / "docs" / "how-to" / "notebook.md").read_text(encoding="utf-8")
    with redirect_stdout(io.StringIO()):
        for cell in re.findall(r"^```ipython\n(.*?)^```", text, re.M | re.S):
            ipython.run_cell(cell).raise_error()
    assert [title for title, _ in ipython.user_ns["found"]] == ["A", "B"]
    ipython.user_ns["con"].close()


def test_an_error_is_a_message_without_a_traceback(shell: Any, fails: Fails) -> None:
    for cell, message in [
        *case_file(__file__, "errors.txt"),
        ("%%relquery\nSELECT\n  FROM films WHERE", "\n  "),
    ]:
        said = fails(cell)
        assert message in said, cell
        assert "Traceback" not in said
        assert ".py" not in said
    assert fails("%relquery SELECT 1 +* 2 FRM films").rstrip().endswith("^"), "points at its place"
    shell.user_ns.pop("con")
    assert "con = relquery.connect('demo')" in fails("%relquery SELECT 1")


def test_warnings_are_lines(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("%relquery SELECT LLM('up', title) FROM films WHERE LLM('x {nope}', id) <> 'y'")
    assert len(found.errors) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Warning: ")


@pytest.mark.long
def test_a_real_notebook_shows_a_table(tmp_path: Path) -> None:
    cells = [
        "%load_ext relquery",
        "import pandas as pd\nimport relquery as rq\nfrom tests.sql.fakes import FakeBackend\n"
        "con = rq.connect(FakeBackend(lambda query, fields: 'Yes'))\n"
        "films = pd.DataFrame({'t': ['A', 'B']})",
        "%%relquery\nSELECT t, LLM('Good?', t, labels := ['Yes', 'No']) AS good FROM films",
        "%%relquery\nSELECT nothing FROM films",
    ]
    notebook = _v4.new_notebook(cells=[_v4.new_code_cell(one) for one in cells])
    resources = {"metadata": {"path": tmp_path}}
    source = Path(rq.__file__).parents[1]  # the package that is tested here
    client = NotebookClient(notebook, timeout=120, allow_errors=True, resources=resources)
    client.execute(env=os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{ROOT}"})
    results = [one for one in notebook.cells[2].outputs if one.output_type == "execute_result"]
    assert "<th>good</th>" in results[0].data["text/html"]
    (error,) = notebook.cells[3].outputs
    assert error.output_type == "error"
    assert error.traceback == ["UnknownColumnError: " + error.traceback[0].partition(": ")[2]]
    assert "'nothing'" in error.traceback[0]
