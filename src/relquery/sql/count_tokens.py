"""AI_COUNT_TOKENS(text, ...): how many tokens a text has for the model. It makes no call.

Snowflake's form is understood too: AI_COUNT_TOKENS('ai_complete', 'model', text).
"""

from __future__ import annotations

from functools import cache, partial

import pyarrow as pa

from relquery.backends.base import Backend
from relquery.prompt import Role, Span
from relquery.sql import names as ours
from relquery.sql.host.database import Database

_CHARACTERS = 4  # per token, where the tokenizer is not known
_OF_SNOWFLAKE = "ai_"


def install(database: Database, backend: Backend) -> None:
    """Give a database the function, unless it has a macro of its name, which then stands.

    It counts with the backend's tokenizer, if there is one. A provider does not tell how it cuts
    text into tokens; there it is one for four characters.
    """

    def count(*columns: pa.ChunkedArray) -> pa.Array:
        counted = cache(partial(_count, backend))
        return pa.array(map(counted, zip(*map(_as_texts, columns), strict=True)), pa.int64())

    if ours.COUNT_TOKENS not in database.macros():
        database.install_function(ours.COUNT_TOKENS, count, "BIGINT")


def _as_texts(column: pa.ChunkedArray) -> list[str | None]:
    """The values of a column as texts; lists and structs as Python writes them."""
    if pa.types.is_nested(column.type):
        return [None if value is None else str(value) for value in column.to_pylist()]
    return list(column.cast(pa.string()).to_pylist())


def _count(backend: Backend, row: tuple[str | None, ...]) -> int | None:
    first = row[0]
    if len(row) > 1 and first is not None and first.lower().startswith(_OF_SNOWFLAKE):
        row = row[-1:]
    total = 0
    for text in row:
        if text is None:
            return None
        runs = backend.runs((Span(text, Role.NONE),)) if text else []
        total += -(-len(text) // _CHARACTERS) if runs is None else sum(map(len, runs))
    return total
