"""JSON is read and written as Python's json does it, at any depth."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import QueryError
from relquery.ir.forms.spnl.deep_json import decode, encode
from tests.cases import case_file

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=4), below),
)  # fmt: skip


@given(VALUES, st.sampled_from([None, 0, 2]))
def test_what_json_writes_is_read(value: object, indent: int | None) -> None:
    assert decode(json.dumps(value, indent=indent)) == value


@given(VALUES)
def test_what_is_written_is_what_json_writes(value: object) -> None:
    assert encode(value) == json.dumps(value, ensure_ascii=False)


@given(st.text(alphabet='[]{}:,"1ae \n\\.-', max_size=12))
def test_what_json_refuses_is_refused(text: str) -> None:
    try:
        expected = json.loads(text, object_pairs_hook=_no_duplicates)
    except ValueError:
        with pytest.raises(QueryError, match="is not JSON at line"):
            decode(text)
    else:
        assert decode(text) == expected


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def test_depth_has_no_limit() -> None:
    depth = 20_000
    value = decode("[" * depth + "]" * depth)
    for _ in range(depth - 1):
        [value] = value  # type: ignore[misc]
    assert value == []


def test_an_error_names_line_and_column() -> None:
    for text, message in case_file(__file__, "json_refused.txt"):
        with pytest.raises(QueryError, match=message):
            decode(eval(text.replace("\n", "\\n")))
