"""Exports DuckDB rows to an Arrow table without losing any value.

Arrow lacks some of DuckDB's types. Their values would arrive as bytes that only DuckDB can read, or
lose part of their content. They are written as text, also inside lists and structs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from relquery.errors import QueryError

# On a field of an Arrow table: the type that its column has in DuckDB.
KIND = b"duckdb_type"

_AT_ONCE = 100_000  # rows
_NESTED = ("list", "array", "map", "struct", "tuple", "union")
_AS_TEXT = {"bit", "bignum", "uhugeint", "time with time zone"}


@dataclass(frozen=True, slots=True)
class Most:
    """How large a table may be that is read from DuckDB, whose memory limit does not count it."""

    cells: int
    bytes: int


def read(relation: Any, most: Most | None) -> pa.Table:
    """All rows of a relation. Raises QueryError if they are more than `most`."""
    if most is None:
        table: pa.Table = relation.to_arrow_table()
        return table
    reader = relation.to_arrow_reader(_AT_ONCE)
    batches, cells, size = [], 0, 0
    for batch in reader:
        cells += batch.num_rows * max(1, batch.num_columns)
        size += batch.nbytes
        if cells > most.cells or size > most.bytes:
            reader.close()
            raise QueryError(
                f"The result has more than {most.cells:,} values or {most.bytes:,} bytes. Select "
                "fewer rows or columns: LIMIT 1000."
            )
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def to_arrow(relation: Any, most: Most | None = None) -> pa.Table:
    """All rows of a relation; the table's field metadata records the DuckDB types.

    BIT, BIGNUM, UHUGEINT and TIMETZ are text, VARIANT is JSON text. Raises what `read` raises.
    """
    kinds = relation.types
    if any(map(_is_foreign, kinds)):
        items = (
            f"{_written(kind, f'#{at}')} AS {quoted(name)}"
            for at, (kind, name) in enumerate(zip(kinds, relation.columns, strict=True), 1)
        )
        relation = relation.project(", ".join(items))
    table = read(relation, most)
    fields = (
        field.with_metadata({**(field.metadata or {}), KIND: _stated(kind)})
        for field, kind in zip(table.schema, kinds, strict=True)
    )
    return pa.Table.from_arrays(table.columns, schema=pa.schema(list(fields)))


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def parts_of(kind: Any) -> dict[str, Any]:
    """The types inside a nested type by name; empty for other types."""
    if kind.id == "tuple":  # Arrow has structs in place of tuples, and DuckDB names their fields so
        return {f"element{at}": part for at, (_, part) in enumerate(kind.children, 1)}
    nested = kind.id in _NESTED
    return {name: part for name, part in kind.children if name != "size"} if nested else {}


def _stated(kind: Any) -> str:
    """A type as DuckDB reads it again, with structs in place of tuples, which it does not read."""
    if kind.id in _NESTED:
        return _nested(kind, _stated)
    return str(kind)


def _is_foreign(kind: Any) -> bool:
    """Whether Arrow has no type for the values of a type."""
    return kind.id in (*_AS_TEXT, "variant") or any(map(_is_foreign, parts_of(kind).values()))


def _written(kind: Any, column: str) -> str:
    return f"CAST({column} AS {_in_arrow(kind)})" if _is_foreign(kind) else column


def _in_arrow(kind: Any) -> str:
    """The type that replaces a type in Arrow."""
    if kind.id in _AS_TEXT:
        return "VARCHAR"
    if kind.id == "variant":
        return "JSON"
    return _nested(kind, _in_arrow) if kind.id in _NESTED else str(kind)


def _nested(kind: Any, written: Callable[[Any], str]) -> str:
    """written: the text of a part."""
    parts = {name: written(part) for name, part in parts_of(kind).items()}
    match kind.id:
        case "list":
            return f"{parts['child']}[]"
        case "array":
            return f"{parts['child']}[{dict(kind.children)['size']}]"
        case "map":
            return f"MAP({parts['key']}, {parts['value']})"
    # The first part of a UNION is its tag and has no name.
    members = ", ".join(f"{quoted(name)} {part}" for name, part in parts.items() if name)
    name = "UNION" if kind.id == "union" else "STRUCT"
    return f"{name}({members})" if members else name
