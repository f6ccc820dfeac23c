"""DuckDB's rows as an Arrow table, without the loss of any value.

Arrow lacks some of DuckDB's types. Their values would arrive as bytes that only DuckDB can read, or
lose part of their content. They are written as text, also inside lists and structs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from relquery.errors import QueryError
from relquery.sql.names import PREFIX, quoted, quoted_text

KIND = b"duckdb_type"
"""On a field of an Arrow table: the type that its column has in DuckDB."""

_AT_ONCE = 100_000  # rows
_MOST_HOURS = 2**63 // (60 * 60 * 10**9)
_ITEM = f"{PREFIX}item"
_NESTED = ("list", "array", "map", "struct", "tuple", "union")
_IN_ARROW = {
    **dict.fromkeys(("bit", "bignum", "uhugeint", "time with time zone"), "VARCHAR"),
    "variant": "JSON",
}


@dataclass(frozen=True, slots=True)
class Most:
    """The largest table that is read from DuckDB, whose memory limit does not count it."""

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
    if any(_has_interval(kind) or _is_foreign(kind) for kind in kinds):
        items = (
            f"{_readable(f'#{index}', kind)} AS {quoted(name)}"
            for index, (kind, name) in enumerate(zip(kinds, relation.columns, strict=True), 1)
        )
        relation = relation.project(", ".join(items))
    table = read(relation, most)
    fields = (
        field.with_metadata({**(field.metadata or {}), KIND: _stated(kind)})
        for field, kind in zip(table.schema, kinds, strict=True)
    )
    return pa.Table.from_arrays(table.columns, schema=pa.schema(list(fields)))


def kind_of(field: pa.Field) -> Any:
    """The DuckDB type of a column; None if the field does not record it, or Python has no name
    for it."""
    noted = (field.metadata or {}).get(KIND)
    try:
        return None if noted is None else duckdb.sqltype(noted.decode())
    except duckdb.Error:  # of a state of an aggregate
        return None


def parts_of(kind: Any) -> list[tuple[str, Any]]:
    """(name, type) of what is inside a nested type; nothing for other types."""
    children: list[tuple[str, Any]] = kind.children if kind.id in _NESTED else []
    if kind.id == "array":  # its size comes last
        return children[:-1]
    return children[1:] if kind.id == "union" else children  # its tag comes first


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a column as DuckDB writes them."""
    with duckdb.connect() as plain:
        plain.register("t", pa.table({"a": column}))
        texts: pa.ChunkedArray = plain.sql("SELECT CAST(a AS VARCHAR) FROM t").to_arrow_table()[0]
        return texts


def distinct_names(names: list[str]) -> list[str]:
    """Names with suffixes `_1`, `_2`, ... for repeated ones, ignoring case."""
    taken: set[str] = set()
    distinct = []
    for name in names:
        candidate, number = name, 0
        while candidate.lower() in taken:
            number += 1
            candidate = f"{name}_{number}"
        taken.add(candidate.lower())
        distinct.append(candidate)
    return distinct


def _stated(kind: Any) -> str:
    """A type as DuckDB reads it again. It does not read a tuple without parts."""
    return re.sub(r"\bTUPLE(?=[,)\[]|$)", "TUPLE(BOOLEAN)", str(kind))


def _readable(column: str, kind: Any) -> str:
    """SQL of a column that Arrow can hold."""
    value = _in_days(column, kind) if _has_interval(kind) else column
    is_other = _is_foreign(kind) or value is not column
    return f"CAST({value} AS {_in_arrow(kind)})" if is_other else column


def _has_interval(kind: Any) -> bool:
    return kind.id == "interval" or any(_has_interval(part) for _, part in parts_of(kind))


def _in_days(value: str, kind: Any) -> str:
    """SQL of a value whose long intervals are in days, since Arrow counts nanoseconds."""
    if not _has_interval(kind):
        return value
    parts = parts_of(kind)
    if kind.id == "interval":
        hours = f"date_part('hour', {value})"
        in_days = (
            f"{value} - to_hours({hours}) + to_days(CAST({hours} // 24 AS INTEGER)) "
            f"+ to_hours({hours} % 24)"
        )
        return f"CASE WHEN abs({hours}) < {_MOST_HOURS} THEN {value} ELSE {in_days} END"
    if kind.id in ("list", "array"):
        return f"list_transform({value}, lambda {_ITEM}: {_in_days(_ITEM, parts[0][1])})"
    if kind.id == "map":
        pair = (f"{name} := {_in_days(f'{_ITEM}.{name}', part)}" for name, part in parts)
        pairs = (
            f"list_transform(map_entries({value}), lambda {_ITEM}: struct_pack({', '.join(pair)}))"
        )
        return f"map_from_entries({pairs})"
    if kind.id == "union":
        tags = {name: f"union_extract({_ITEM}, {quoted_text(name)})" for name, _ in parts}
        whens = (
            f"WHEN {quoted_text(name)} THEN CAST(union_value({quoted(name)} := "
            f"{_in_days(tags[name], part)}) AS {kind})"
            for name, part in parts
        )
        whole = f"CASE union_tag({_ITEM}) {' '.join(whens)} END"
    else:
        values = [
            _in_days(f"struct_extract_at({_ITEM}, {index})", part)
            for index, (_, part) in enumerate(parts, 1)
        ]
        named = (
            f"{quoted(name)} := {value}" for (name, _), value in zip(parts, values, strict=True)
        )
        made = (
            f"row({', '.join(values)})"
            if kind.id == "tuple"
            else f"struct_pack({', '.join(named)})"
        )
        whole = f"CASE WHEN {_ITEM} IS NOT NULL THEN {made} END"
    return f"list_transform([{value}], lambda {_ITEM}: {whole})[1]"


def _is_foreign(kind: Any) -> bool:
    """Whether Arrow has no type for the values of a type."""
    return kind.id in _IN_ARROW or any(_is_foreign(part) for _, part in parts_of(kind))


def _in_arrow(kind: Any) -> str:
    """The type that replaces a type in Arrow."""
    if kind.id not in _NESTED:
        return _IN_ARROW.get(kind.id, str(kind))
    parts = [(name, _in_arrow(part)) for name, part in parts_of(kind)]
    texts = [text for _, text in parts]
    match kind.id:
        case "list":
            return f"{texts[0]}[]"
        case "array":
            return f"{texts[0]}[{dict(kind.children)['size']}]"
        case "struct" | "union":
            texts = [f"{quoted(name)} {text}" for name, text in parts]
    return f"{kind.id.upper()}({', '.join(texts)})" if texts else "STRUCT"
