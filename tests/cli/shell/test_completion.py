"""Typed text: what Tab offers, and how it becomes statements and dot-commands."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import to_plain_text

from relquery.cli.shell.completion import FUNCTIONS, ShellCompleter, entries, is_whole
from relquery.sql import names
from tests.cases import cases

TABLES = {
    "movies": ["title", "year", "Review Text"],
    "tickets": ["message", "year"],
    "a.b": ["deep"],
    "my table": ["x"],
    "order": ["number"],
}
COMPLETER = ShellCompleter(
    lambda: TABLES, {".tables": lambda: (), ".timer": lambda: ("on", "off"), ".read": None}
)


def offered(text: str) -> list[str]:
    """The words offered where `|` is in a text."""
    before, _, after = text.partition("|")
    document = Document(before + after, len(before))
    return [one.text for one in COMPLETER.get_completions(document, CompleteEvent())]


@pytest.mark.parametrize(("text", "words"), cases(__file__, "offered"))
def test_words_that_fit_are_offered(text: str, words: list[str]) -> None:
    assert offered(text) == words


def test_functions_are_offered_with_their_arguments() -> None:
    (one,) = COMPLETER.get_completions(Document("SELECT AI_SC"), CompleteEvent())
    assert to_plain_text(one.display) == "AI_SCORE('question', column, ...)"
    plain = {names.COUNT_TOKENS, names.SIMILARITY, names.EMBED, names.NEAREST, names.DUPLICATES}
    searching = {names.PASSAGES, names.SEARCH, names.DEDUP}
    known = names.FUNCTIONS | plain | searching | {"bag", "module"}
    assert {name.lower() for name in FUNCTIONS} == known


def test_files_are_offered_to_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "day.sql").touch()
    (tmp_path / ".hidden").touch()
    assert offered(".read |") == ["data"]
    assert offered(".read data/d|") == ["ay.sql"]
    assert offered(".read nowhere/d|") == []


@pytest.mark.parametrize(("text", "whole", "rest"), cases(__file__, "cut"))
def test_a_text_is_cut_where_duckdb_would_cut_it(text: str, whole: list[str], rest: str) -> None:
    assert entries(text) == (whole, rest)
    assert is_whole(text) == (not rest)


PIECES = ("SELECT 1", ";", "'a;''b'", '"c;"', "/* ; */", "-- ;\n", "$$ ; $$", "e'\\';'", "1", "\n")
PARTS = st.sampled_from((*PIECES, " AS "))


@given(st.lists(PARTS, max_size=8))
def test_what_duckdb_parses_is_cut_into_as_many_statements(parts: list[str]) -> None:
    text = " ".join(parts) + "\n;"
    try:
        parsed = duckdb.extract_statements(text)
    except duckdb.Error:
        return
    whole, rest = entries(text)
    assert (len(whole), rest) == (len(parsed), "")
