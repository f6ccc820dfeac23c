"""A SQL query on its own engine, timed by its turns (see benchmarks/turns.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.turns import Turn, passing_on
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig, Order
from relquery.connection import connect
from relquery.sql.result import Result

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

# After each turn, the processor's caches hold the others' data; a user's query has them to itself.
TURN_SECONDS = 1.0

Make = Callable[["ServedModel", EngineConfig], EmbeddedBackend]


def run_query(
    model: ServedModel,
    tables: Mapping[str, pa.Table],
    sql: str,
    turn: Turn,
    *,
    make: Make = EmbeddedBackend,
    config: EngineConfig | None = None,
    order: Order = "tree",
    max_tokens: int = 256,
) -> tuple[Result, float]:
    """The result of a query over tables, and the seconds of its turns.

    A step ends a turn once it has lasted TURN_SECONDS.

    tables: by their names in the query. make: the backend. Its engine's cache is allocated in
    advance.
    """
    with ExitStack() as stack:
        backend = stack.enter_context(closing(make(model, config or EngineConfig())))
        backend.reserve()
        stack.enter_context(passing_on(backend.engine, turn, TURN_SECONDS))
        connection = stack.enter_context(
            closing(connect(backend, order=order, form="json", ledger=None))
        )
        for name, table in tables.items():
            connection.register(name, table)
        begin = turn.now()
        result = connection.sql(sql, max_tokens=max_tokens)
        result.fetchall()
        return result, turn.now() - begin
