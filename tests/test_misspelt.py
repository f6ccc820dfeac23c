"""A keyword that is misspelt is refused with the one that was meant, whoever takes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from relquery.config import OF_CONNECT
from relquery.connection import Connection, connect
from relquery.errors import ConfigError
from relquery.evaluation.evaluate import evaluate
from relquery.sql.settings import keywords_of
from tests.sql.fakes import FakeBackend


def test_the_keywords_of_connect_are_those_that_backends_suggest() -> None:
    assert tuple(keywords_of(connect)) == OF_CONNECT


def test_connect_suggests_its_own_keywords() -> None:
    names = {"embeder": "embedder", "legder": "ledger", "indx": "index"}
    for model, (name, meant) in product(["demo", "openai:gpt-4o"], names.items()):
        with pytest.raises(ConfigError, match=f"Did you mean '{meant}'"):
            connect(model, **dict[str, Any]({name: None}))


@pytest.mark.parametrize(
    ("use", "meant"),
    [
        (lambda con: con.sql("SELECT 1", on_eror="null"), "on_error"),
        (lambda con: con.sql("SELECT 1", ordr="tree"), "order"),
        (lambda con: con.preview("SELECT 1", row=3), "rows"),
        (lambda con: con.explain("SELECT 1", selectivty=1), "selectivity"),
        (lambda con: evaluate(con, "SELECT 1 AS a, 1 AS b", "a", tolerence=1), "tolerance"),
    ],
)
def test_queries_suggest_their_own_keywords(
    use: Callable[[Connection], object], meant: str
) -> None:
    with (
        connect(FakeBackend(lambda query, fields: ""), ledger=None) as con,
        pytest.raises(ConfigError, match=f"Did you mean '{meant}'"),
    ):
        use(con)


@pytest.mark.parametrize(
    ("embedder", "meant"),
    [
        ("text-embedding-3-small", "Write 'openai:text-embedding-3-small'."),
        ("openai:", "e.g. openai:text-embedding-3-small."),
    ],
)
def test_an_embedder_of_openai_is_named_in_full(embedder: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(meant)):
        connect(FakeBackend(lambda query, fields: ""), embedder=embedder)
