"""Tables in JSON: what is wrong with one is told with its place."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from relquery.errors import TableError
from relquery.serve.ours.relqueries.bodies import RelQueryBody, table_of

KINDS: list[tuple[Any, str]] = [
    (True, "true or false"),
    (1, "a number"),
    ("tea", "text"),
    ([1], "a list"),
    ({"a": 1}, "an object"),
]


@pytest.mark.parametrize("of", ["rows", "columns"])
def test_a_column_of_two_types_is_told_with_its_rows(of: str) -> None:
    for (one, first), (other, second) in permutations(KINDS, 2):
        values = [None, one, None, one, other]
        given = {"rows": [{"id": 1, "a": each} for each in values], "columns": {"a": values}}[of]
        body = RelQueryBody.model_validate({of: given, "prompt": "Good?"})
        with pytest.raises(TableError) as caught:
            table_of(body, None)
        assert f"Column 'a' has {second} in row 4 and {first} in row 1" in str(caught.value)


def test_whole_and_broken_numbers_are_of_one_type() -> None:
    body = RelQueryBody.model_validate({"columns": {"a": [1, 2.5, None]}, "prompt": "Good?"})
    assert table_of(body, None)["a"].to_pylist() == [1.0, 2.5, None]


def test_another_fault_of_a_column_is_told_with_its_name() -> None:
    body = RelQueryBody.model_validate({"columns": {"a": [2**70]}, "prompt": "Good?"})
    with pytest.raises(TableError, match="cannot be read"):
        table_of(body, None)
