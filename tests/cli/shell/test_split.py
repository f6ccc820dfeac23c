"""Typed text becomes statements and dot-commands."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.cli.shell.split import entries, is_whole, pieces
from tests.serve.cases import cases


@pytest.mark.parametrize(("text", "whole", "rest"), cases(__file__))
def test_a_text_is_cut_where_duckdb_would_cut_it(text: str, whole: list[str], rest: str) -> None:
    assert entries(text) == (whole, rest)
    assert is_whole(text) == (not rest)


PIECES = ("SELECT 1", ";", "'a;''b'", '"c;"', "/* ; */", "-- ;\n", "$$ ; $$", "e'\\';'", "1", "\n")
PARTS = st.sampled_from((*PIECES, " AS "))


@given(st.lists(PARTS, max_size=8))
def test_the_pieces_of_a_text_are_the_text(parts: list[str]) -> None:
    text = "".join(parts)
    assert "".join(text[piece.start : piece.stop] for piece in pieces(text)) == text


@given(st.lists(PARTS, max_size=8))
def test_what_duckdb_parses_is_cut_into_as_many_statements(parts: list[str]) -> None:
    text = " ".join(parts) + "\n;"
    try:
        parsed = duckdb.extract_statements(text)
    except duckdb.Error:
        return
    whole, rest = entries(text)
    assert (len(whole), rest) == (len(parsed), "")
