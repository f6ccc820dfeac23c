"""A script of statements fails where what it says is not so."""

from __future__ import annotations

import pytest

from relquery.connection import Connection
from relquery.errors import QueryError
from tests.sql.fakes import FakeBackend
from tests.sql.scripts import read

UP = "SELECT LLM('up', title) FROM films WHERE id = 6"
RIGHT = f"""
-- all of this is so
@up {UP}
{{up}}  = [("DUNE",)]
# 1
? (query, fields) == ("up", {{"title": "Dune"}})
:: SELECT {{}} FROM films
LLM('up', titel)  ! UnknownColumnError titel
LLM('up', id)
$ None
% order="original"
? queries ==
  ["up"] * 6
"""
WRONG = [
    f'{UP}\n= [("Dune",)]',
    f"{UP}\n# 2",
    f"{UP}\n? fields == {{}}",
    f"{UP}\n! QueryError .",
    f"{UP}\n~ PartialResultWarning .",
    "SELECT LLM('up', titel) FROM films  ! QueryError title is",
    "SELECT LLM('up', titel) FROM films  ! UnknownTableError titel",
    "SELECT max(LLM('up', title))::INT FROM films  ! QueryError nothing",
    "SELECT LLM('up', title)::INT FROM films",  # it warns, which is not said
]


def test_what_is_so_passes(con: Connection, backend: FakeBackend) -> None:
    ((script, is_long),) = read(RIGHT)
    assert (script.title, is_long) == ("all of this is so", False)
    script.run(con, backend)


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_not_so_fails(wrong: str, con: Connection, backend: FakeBackend) -> None:
    ((script, _),) = read(f"-- not so\n{wrong}\n")
    with pytest.raises(AssertionError):
        script.run(con, backend)


def test_an_error_that_is_not_said_is_raised(con: Connection, backend: FakeBackend) -> None:
    ((script, _),) = read("-- not so\nSELECT LLM('up', titel) FROM films\n")
    with pytest.raises(QueryError, match="titel"):
        script.run(con, backend)
