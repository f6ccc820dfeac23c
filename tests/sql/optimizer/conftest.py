"""A fixture that rewrites a statement as it is before it is run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relquery.connection import Connection
from relquery.prompt import Sampling
from relquery.sql.binder.bind import bind
from relquery.sql.binder.definitions import read
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.binder.statement import Calling
from relquery.sql.host.database import Database
from relquery.sql.optimizer.rules import optimize
from relquery.sql.parser.shell import read_shell
from relquery.sql.parser.statements import split
from relquery.sql.parser.tree import Query


@pytest.fixture
def rewritten(con: Connection) -> Callable[[str], str]:
    """A query after all rules."""
    return lambda query: optimize(*_bound(query, con)).key


@pytest.fixture
def plain(con: Connection) -> Callable[[str], str]:
    """A query as it is."""
    return lambda query: _bound(query, con)[0].key


def _bound(query: str, con: Connection) -> tuple[Query, Database, FunctionCatalog]:
    (text,), shell = split(query, con.database), read_shell(query)
    calling = Calling(text, shell, read(shell, {}), {})
    bound = bind(calling, con.database, Sampling())
    return bound.query, con.database, bound.functions
