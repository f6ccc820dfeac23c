"""Tables are read from files once, when the server starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from relquery.errors import ConfigError, TableError
from relquery.serve.ours.sql.tables import Tables


def test_files_become_tables_in_memory(folder: Path):
    notes = folder / "notes.csv"
    tables = Tables({"my notes": str(notes), "shop": str(folder / "shop.duckdb")}, "1GB")
    shown = {(each.schema, each.name): (each.columns, each.rows) for each in tables.all}
    assert shown == {
        ("main", "my notes"): ((("id", "BIGINT"), ("note", "VARCHAR")), 3),
        ("main", "orders"): ((("id", "INTEGER"), ("price", "DECIMAL(5,2)")), 1),
        ("shop", "orders"): ((("id", "INTEGER"), ("price", "DECIMAL(5,2)")), 1),
    }
    with tables.cursor() as cursor:
        assert cursor.execute('SELECT count(*) FROM "my notes"').fetchall() == [(3,)]
        assert (
            cursor.execute("FROM shop.orders").fetchall()
            == cursor.execute("FROM orders").fetchall()
        )
    tables.close()


def test_what_cannot_be_read_says_which_table(folder: Path):
    with pytest.raises(TableError, match="Table 'gone'"):
        Tables({"gone": str(folder / "gone.csv")}, "1GB")
    with pytest.raises(TableError, match="demo table"):
        Tables({"films": "demo:films"}, "1GB")


def test_a_size_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="sql_memory"):
        Tables({}, "much")
