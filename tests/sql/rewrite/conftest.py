"""A fixture that rewrites a statement as it is before it is run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relquery.connection import Connection
from relquery.sql.read.aggregates import Aggregates
from relquery.sql.read.macros import Macros
from relquery.sql.read.scopes import with_inside
from relquery.sql.read.source import read_source, unnumbered
from relquery.sql.rewrite.lookup import Lookup
from relquery.sql.rewrite.rules import rewrite


@pytest.fixture
def rewritten(con: Connection) -> Callable[[str], str]:
    """The text of a statement after all rules."""

    def rewritten(query: str) -> str:
        source = read_source(query)
        aggregates = Aggregates.of(con.database, source.parse())
        tree = Macros(con.database, aggregates).expand(with_inside(source.parse()), query)
        return unnumbered(rewrite(tree, Lookup(con.database, source, aggregates)))

    return rewritten
