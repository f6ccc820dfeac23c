"""Typed text becomes statements and dot-commands."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relquery.cli.shell.split import entries, is_whole, pieces


@pytest.mark.parametrize(
    ("text", "whole", "rest"),
    [
        ("", [], ""),
        (" \n", [], ""),
        ("SELECT 1;", ["SELECT 1;"], ""),
        ("SELECT 1; SELECT\n2;", ["SELECT 1;", "SELECT\n2;"], ""),
        ("SELECT 1; SELECT", ["SELECT 1;"], "SELECT"),
        ("SELECT ';'", [], "SELECT ';'"),
        ("SELECT 'it''s;';", ["SELECT 'it''s;';"], ""),
        (r"SELECT e'a\';b';", [r"SELECT e'a\';b';"], ""),
        (r"SELECT '\';", [r"SELECT '\';"], ""),
        ('SELECT "a;""b";', ['SELECT "a;""b";'], ""),
        ("SELECT $$;$$;", ["SELECT $$;$$;"], ""),
        ("SELECT $x$ $$;$x$;", ["SELECT $x$ $$;$x$;"], ""),
        ("SELECT $1, $n;", ["SELECT $1, $n;"], ""),
        ("SELECT 1 -- no; end", [], "SELECT 1 -- no; end"),
        ("SELECT 1 -- no;\n;", ["SELECT 1 -- no;\n;"], ""),
        ("SELECT /* a /* ; */ ; */ 1;", ["SELECT /* a /* ; */ ; */ 1;"], ""),
        ("/* open;", [], "/* open;"),
        ("-- a remark;", [], ""),
        ("-- a remark\nSELECT 1; -- another", ["SELECT 1;"], ""),
        (".tables", [".tables"], ""),
        (".read it's.sql\nSELECT 1;", [".read it's.sql", "SELECT 1;"], ""),
        ("SELECT 1;\n.mode csv\nSELECT 2;", ["SELECT 1;", ".mode csv", "SELECT 2;"], ""),
        ("SELECT a\n.b FROM a;", ["SELECT a\n.b FROM a;"], ""),
        (";;", [], ""),
        ("quit", [".quit"], ""),
        ("Exit;", [".quit"], ""),
        ("help", [".help"], ""),
    ],
)
def test_a_text_is_cut_where_duckdb_would_cut_it(text: str, whole: list[str], rest: str) -> None:
    assert entries(text) == (whole, rest)
    assert is_whole(text) == (not rest)


PARTS = st.sampled_from(
    [
        "SELECT 1",
        ";",
        "'a;''b'",
        '"c;"',
        "/* ; */",
        "-- ;\n",
        "$$ ; $$",
        "e'\\';'",
        " AS ",
        "1",
        "\n",
    ]
)


@given(st.lists(PARTS, max_size=8))
def test_the_pieces_of_a_text_are_the_text(parts: list[str]) -> None:
    text = "".join(parts)
    assert "".join(text[piece.start : piece.stop] for piece in pieces(text)) == text


@settings(max_examples=40)
@given(st.lists(PARTS, max_size=8))
def test_what_duckdb_parses_is_cut_into_as_many_statements(parts: list[str]) -> None:
    text = " ".join(parts) + "\n;"
    with duckdb.connect() as connection:
        try:
            parsed = connection.extract_statements(text)
        except duckdb.Error:
            return
    whole, rest = entries(text)
    assert (len(whole), rest) == (len(parsed), "")
