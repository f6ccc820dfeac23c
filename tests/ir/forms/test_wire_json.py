"""JSON is read and written as Python's json does it, at any depth."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import QueryError
from relquery.ir.forms.spnl.deep_json import decode, encode

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=4), below),
)  # fmt: skip


@given(VALUES, st.sampled_from([None, 0, 2]))
def test_what_json_writes_is_read(value: object, indent: int | None):
    assert decode(json.dumps(value, indent=indent)) == value


@given(VALUES)
def test_what_is_written_is_what_json_writes(value: object):
    assert encode(value) == json.dumps(value, ensure_ascii=False)


@given(st.text(alphabet='[]{}:,"1ae \n\\.-', max_size=12))
def test_what_json_refuses_is_refused(text: str):
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


def test_depth_has_no_limit():
    depth = 200_000
    value = decode("[" * depth + "]" * depth)
    for _ in range(depth - 1):
        [value] = value  # type: ignore[misc]
    assert value == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1, column 1: Expecting value\. Got the end"),
        ('{\n "a": 1,\n "a": 2}', r"line 3, column 2: The key 'a' occurs twice.*Got '\"a\": 2}'"),
        ('{"a" 1}', "line 1, column 6: Expected ':'"),
        ("{1: 2}", "line 1, column 2: Expected a key in double quotes"),
        ("[1\n2]", r"line 2, column 1: Expected ']' or ','\. Got '2]'"),
        ('{"a": 1]', "line 1, column 8: Expected '}' or ','"),
        ("[1, ", r"line 1, column 5: Expecting value\. Got the end"),
        ("[1] 2", "line 1, column 5: Expected the end of the text"),
        ('["a\nb"]', "line 1, column 4: Invalid control character"),
        ('["a', "line 1, column 2: Unterminated string starting"),
        ("[NaN]", "line 1, column 2: NaN is not a valid JSON number"),
        ("9" * 5000, "line 1, column 1: Exceeds the limit"),
        ("{'a': 1}", "line 1, column 2: Expected a key in double quotes"),
    ],
)
def test_an_error_names_line_and_column(text: str, message: str):
    with pytest.raises(QueryError, match=message):
        decode(text)
