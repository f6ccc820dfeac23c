"""What a server compiles before its first request."""

from __future__ import annotations

import random
from typing import Any

import pytest

from relquery.serve.ours.warming import warm
from relquery.table.compiled import Compiled
from relquery.table.reorder import reorder


def test_ordering_a_table_compiles_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    called: set[tuple[str, Any]] = set()

    def call(self: Any, *args: Any) -> Any:
        types = tuple(self.typeof_pyval(each) for each in args)
        called.add((self.py_func.__module__ + self.py_func.__qualname__, types))
        return original(self, *args)

    original = Compiled.__call__
    monkeypatch.setattr(Compiled, "__call__", call)
    warm()
    warmed = frozenset(called)
    draw = random.Random(1)
    texts = [f"value {number} " * number for number in range(1, 20)]
    reorder({name: [draw.choice(texts) for _ in range(300)] for name in "abcde"})
    assert len(warmed) > 5
    assert called == warmed
