"""What a client may declare about a relQuery."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from relquery.engine.request.clients.declared import NOTHING, Declared
from relquery.errors import ConfigError
from tests.engine.harness import for_each


@for_each(
    "given, message",
    [
        ({"id": ""}, "relquery is ''"),
        ({"id": 3}, "relquery is 3"),
        ({"id": "a", "rows": 0}, "rows is 0"),
        ({"id": "a", "rows": True}, "rows is True"),
        ({"id": "a", "rows": 2.5}, "rows is 2.5"),
        ({"id": "a", "rows": 2**41}, "from 1 to"),
        ({"rows": 3}, "Name it"),
        ({"deadline": 0}, "deadline is 0"),
        ({"deadline": float("nan")}, "deadline is nan"),
        ({"deadline": float("inf")}, "deadline is inf"),
        ({"deadline": "soon"}, "deadline is 'soon'"),
    ],
)
def test_what_is_out_of_range_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Declared(**given)


def test_it_travels_between_processes() -> None:
    for each in (NOTHING, Declared("monday", 100, 2.5), Declared(deadline=1)):
        assert pickle.loads(pickle.dumps(each)) == each
