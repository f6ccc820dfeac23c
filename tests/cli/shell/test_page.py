"""What the page about the shell shows is what the shell shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relquery.cli.shell.commands import COMMANDS
from relquery.cli.shell.screen import Screen
from relquery.cli.shell.session import Session
from relquery.cli.shell.start import is_yes, run_entries
from relquery.cli.sql.setup import Setup
from relquery.demo.files import table_path

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "shell.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^relquery> (.*(?:\n     \.\.\.> .*)*)\n", re.MULTILINE)


class Answering:
    """A person who says no."""

    def read(self) -> str:
        raise EOFError

    def answer(self, question: str) -> str:
        print(f"{question}n")
        return "n"


@pytest.mark.long
def test_the_transcripts_are_true(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    tables = {"movies": table_path("movies")}
    setup = Setup("demo", {}, tables, ":memory:", "tree", None, 50, None, "tfidf", None, {})
    session = Session.open(setup, Screen(), lambda question: is_yes(Answering(), question))
    assert len(BLOCKS) == 2
    for block in BLOCKS:
        _, *parts = _ENTRY.split(block)
        for typed, shown in zip(parts[::2], parts[1::2], strict=True):
            run_entries(session, typed.replace("\n     ...> ", "\n"))
            out, err = capsys.readouterr()
            assert set(_lines(shown)) <= set(_lines(out + err)), out + err
    session.close()


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_every_command_is_on_the_page() -> None:
    table = "".join(line for line in PAGE.splitlines() if line.startswith("| `."))
    assert set(re.findall(r"`(\.\w+)", table)) == set(COMMANDS)
