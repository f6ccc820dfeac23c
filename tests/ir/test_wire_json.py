"""JSON is read as Python's json reads it, without what JSON does not have."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import QueryError
from relquery.ir.spnl.fields import decode
from tests.cases import case_file


@given(st.text(alphabet='[]{}:,"1ae \n\\.-', max_size=12))
def test_what_json_refuses_is_refused_and_all_else_is_read(text: str) -> None:
    try:
        expected = json.loads(text, object_pairs_hook=_no_duplicates)
    except ValueError:
        with pytest.raises(QueryError):
            decode(text)
    else:
        assert decode(text) == expected


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def test_an_error_says_what_is_wrong_and_where() -> None:
    for text, message in case_file(__file__, "json_refused.txt"):
        with pytest.raises(QueryError, match=message):
            decode(eval(text.replace("\n", "\\n")))
