"""Prepares result tables for file formats, which have fewer types than Arrow."""

from __future__ import annotations

import pyarrow as pa

from relquery.sql.exchange.moments import is_beyond_python
from relquery.sql.exchange.texts import as_text, holds, is_of_duckdb_alone, with_texts


def for_csv(table: pa.Table, names: list[str]) -> pa.Table:
    """The table with new names; nested values, bytes and intervals as text in DuckDB's format."""
    return with_texts(table, names, _text_for_csv)


def for_parquet(table: pa.Table, names: list[str]) -> pa.Table:
    """The table with new names; intervals, unions and structs without fields as text."""
    return with_texts(table, names, _text_for_parquet)


def _text_for_csv(column: pa.ChunkedArray, _: pa.Field) -> pa.ChunkedArray | None:
    is_text = holds(column.type, _is_not_plain) or is_beyond_python(column)
    return as_text(column) if is_text else None


def _text_for_parquet(column: pa.ChunkedArray, _: pa.Field) -> pa.ChunkedArray | None:
    return as_text(column) if holds(column.type, _is_not_in_parquet) else None


def _is_not_in_parquet(kind: pa.DataType) -> bool:
    is_empty = pa.types.is_struct(kind) and not kind.num_fields
    return is_of_duckdb_alone(kind) or is_empty


def _is_not_plain(kind: pa.DataType) -> bool:
    return is_of_duckdb_alone(kind) or pa.types.is_nested(kind) or pa.types.is_binary(kind)
