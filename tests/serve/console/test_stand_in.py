"""The stand-in answers in the form of the real SQL routes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from relquery.connection import connect
from relquery.errors import PartialResultWarning
from relquery.serve.sql_workers.jobs import lines_of
from relquery.sql.explain.explanation import SCHEMA
from tests.serve.console import stand_in
from tests.sql.conftest import SETUP, fails_for_dune
from tests.sql.fakes import FakeBackend


def test_tables_and_plans_have_the_fields_of_the_real_ones() -> None:
    for table in asyncio.run(stand_in.tables())["data"]:
        assert {*table} == {"name", "schema", "columns", "rows"}
    plan = asyncio.run(stand_in.explain(stand_in.Query(query="SELECT 1")))
    assert {*plan} == {"text", "stages"}
    assert {name for stage in plan["stages"] for name in stage} <= set(SCHEMA.names)


def test_lines_of_a_run_have_fields_that_the_real_ones_have() -> None:
    with connect(FakeBackend(fails_for_dune)) as con:
        con.database.connection.execute(SETUP)
        with pytest.warns(PartialResultWarning):
            result = con.sql("SELECT LLM('Upper', title) FROM films", record=True)
        real = {line["type"]: line for line in lines_of(result, con)}
    missing = [(line["type"], place) for line in told() if line["type"] != "progress"
               for place in absent(line, real[line["type"]])]  # fmt: skip
    assert missing == []


def told() -> list[dict[str, Any]]:
    async def all_lines() -> list[dict[str, Any]]:
        asked = stand_in.Query(query="SELECT 1", record=True)
        return [json.loads(line) async for line in stand_in._lines(asked)]

    return asyncio.run(all_lines())


def absent(ours: Any, real: Any, place: str = "") -> list[str]:
    """Names in an object that the real one lacks; the first of each list stands for all."""
    if isinstance(ours, dict) and place.endswith("inputs"):
        return []
    if isinstance(ours, dict):
        return [
            found
            for name, value in ours.items()
            for found in (
                absent(value, real[name], f"{place}.{name}")
                if name in real
                else [f"{place}.{name}"]
            )
        ]
    if isinstance(ours, list) and ours and isinstance(ours[0], dict):
        return absent(ours[0], real[0], f"{place}[]")
    return []
