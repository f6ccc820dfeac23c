"""What README and documentation show runs, and prints what they say it prints."""

from __future__ import annotations

import io
import linecache
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

import relquery as rq
from benchmarks.standin.server import serving
from benchmarks.standin.wires.openai_chat import completion
from relquery.cli.app import app
from relquery.demo.files import TABLES
from tests.cli.flags import check_flags
from tests.pages.served import Server, has_programs, in_shell, letters, server

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_ELSEWHERE = (DOCS / "spark.md",)
"""Pages that need a session of Spark; see tests/spark/test_page.py."""
PAGES = [
    ROOT / "README.md",
    *sorted(
        page
        for page in DOCS.rglob("*.md")
        if page.parent.name != "benchmarks" and page not in _ELSEWHERE
    ),
]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
# Seconds, and what came too fast to be measured; not the probabilities of labels.
_MEASURED = re.compile(r"(?<!': )\b\d+\.\d+|\b0\b(?!\.)")
_OF_BATCHES = re.compile(r"relquery (sql .*--batch|batches)\b")
"""Needs a provider's batches, which take files. tests/cli/test_batches.py runs them."""
_OWN_TABLES = (DOCS / "how-to" / "batch.md",)
"""Pages that make the tables that they read."""
_SERVED = (DOCS / "serve.md",)
"""Pages whose first `relquery serve` starts a server, which the blocks after it ask. Of other such
commands the flags are checked."""
_IN_SHELL = ("curl ", "OPENAI_API_BASE=")


class Snippet(NamedTuple):
    """A block of a page, and the block right below it if that is what it prints."""

    language: str
    text: str
    printed: str | None


@pytest.fixture(scope="module", autouse=True)
def provider() -> Iterator[None]:
    """A provider for the models that pages name, which answers each question alike."""
    with (
        serving(lambda body: completion("Billing.")) as chat,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("OPENAI_BASE_URL", chat.url)
        patch.setenv("OPENAI_API_KEY", "none")
        yield


@pytest.fixture(scope="module")
def tickets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table that pages call `tickets.csv`, as a reader's own."""
    path = tmp_path_factory.mktemp("tables") / "tickets.csv"
    csv.write_csv(parquet.read_table(rq.demo_table("tickets")).slice(0, 20), path)
    return path


def snippets(page: Path) -> Iterator[Snippet]:
    text = page.read_text(encoding="utf-8")
    blocks = list(_FENCE.finditer(text))
    for place, block in enumerate(blocks):
        below = blocks[place + 1] if place + 1 < len(blocks) else None
        is_output = (
            below is not None
            and not below[1]
            and not text[block.end() : below.start()].strip()
            and not below[2].startswith("$ ")
        )
        yield Snippet(block[1], block[2], below[2] if below and is_output else None)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.filterwarnings("ignore::relquery.errors.PartialResultWarning")
@pytest.mark.parametrize("page", [page for page in PAGES if any(snippets(page))], ids=name)
def test_a_page_does_what_it_shows_from_top_to_bottom(
    page: Path, tickets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    if page not in _OWN_TABLES:
        shutil.copy(tickets, tmp_path)
    names: dict[str, Any] = {}
    with ExitStack() as servers:
        running: Server | None = None
        for snippet in snippets(page):
            if snippet.language == "python":
                printed = io.StringIO()
                text = snippet.text if running is None else running.here(snippet.text)
                with redirect_stdout(printed):
                    exec(_compiled(text, f"<{page.name} {len(names)}>"), names)
                if snippet.printed is not None:
                    assert _lines(printed.getvalue()) == _lines(snippet.printed)
            elif snippet.language == "sql":
                assert _on_the_demo_tables(snippet.text)
            for command, shown in commands_in(snippet):
                if command.startswith("relquery serve") and page in _SERVED and running is None:
                    running = servers.enter_context(server(command))
                    assert letters(running.on_page(running.said)) == letters(shown)
                else:
                    _do(command, shown, running)


def _do(command: str, shown: str, running: Server | None) -> None:
    """Run a command of a terminal as the page's reader would."""
    if command.startswith("cat "):
        text = shown if running is None else running.here(shown)
        Path(command.split()[1]).write_text(text, encoding="utf-8")
    elif command.startswith("relquery serve") or _OF_BATCHES.match(command):
        check_flags(shlex.split(command)[1:])
    elif command.startswith("relquery "):
        said = _run(command)
        assert not shown.strip() or _words(said) == _words(shown), command
    elif running is not None and command.startswith(_IN_SHELL) and has_programs(command):
        said = in_shell(running.here(command))
        assert not shown.strip() or letters(running.on_page(said)) == letters(shown), command


def _compiled(text: str, source: str) -> CodeType:
    """Code whose functions know their source, as in a notebook."""
    linecache.cache[source] = len(text), None, text.splitlines(keepends=True), source
    return compile(text, source, "exec")


def _on_the_demo_tables(query: str) -> list[tuple[Any, ...]]:
    with rq.connect(model="demo") as connection:
        for table in TABLES:
            connection.register(table, rq.demo_table(table))
        return connection.sql(query).fetchall()


def commands_in(snippet: Snippet) -> Iterator[tuple[str, str]]:
    """(command, what it prints) of a block that shows a terminal."""
    if snippet.language or not snippet.text.startswith("$ "):
        return
    for part in re.split(r"^\$ ", snippet.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        size = 1
        while _goes_on("".join(lines[:size])) and size < len(lines):
            size += 1
        yield "".join(lines[:size]).replace("\\\n", " "), "".join(lines[size:])


def _goes_on(command: str) -> bool:
    """Whether a command ends on a later line."""
    if command.endswith("\\\n"):
        return True
    try:
        shlex.split(command)
    except ValueError:
        return True
    return False


def _run(command: str) -> str:
    ran = CliRunner().invoke(app, shlex.split(command)[1:], env={"COLUMNS": "200"})
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def _lines(text: str) -> list[str]:
    """Without what is measured, and the width that it takes."""
    return [" ".join(_MEASURED.sub("0", line).split()) for line in text.rstrip().splitlines()]


def _words(text: str) -> list[str]:
    """Without how it is laid out, and without what is measured."""
    return _MEASURED.sub("0", text).split()
