"""What a header declares of a relQuery."""

from __future__ import annotations

import pytest

from relquery.serve.access.declared import read_declared
from relquery.serve.body import Declared
from relquery.serve.errors import HttpError


@pytest.mark.parametrize(
    "text",
    [
        '{"id": "q7", "rows": 40, "deadline": 2.5}',
        "id=q7; rows=40; deadline=2.5",
        'id="q7";rows=40;deadline=2.5;',
    ],
)
def test_a_header_is_json_or_pairs(text: str) -> None:
    assert read_declared(text) == Declared(id="q7", rows=40, deadline=2.5)


@pytest.mark.parametrize(
    ("text", "said", "param"),
    [
        ("id=q7; row=4", "Did you mean 'rows'", "relquery.row"),
        ("id=q7; rows=0", "rows is '0'", "relquery.rows"),
        ("id=q7; rows=many", "rows is 'many'", "relquery.rows"),
        ('{"deadline": -1}', "deadline is -1", "relquery.deadline"),
        ('{"id": ""}', "id is ''", "relquery.id"),
        ("{", "JSON", "relquery"),
        ('{"id": ' + "[" * 100_000, "JSON", "relquery"),
        ("q7", "no value", "relquery"),
        ("id=a; id=b", "given twice", "relquery.id"),
    ],
)
def test_a_wrong_header_is_refused_by_name(text: str, said: str, param: str) -> None:
    with pytest.raises(HttpError) as caught:
        read_declared(text)
    assert caught.value.status == 400
    assert said in caught.value.message
    assert caught.value.param == param
