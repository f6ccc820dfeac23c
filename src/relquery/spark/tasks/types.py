"""Types of Arrow that Spark has."""

from __future__ import annotations

import pyarrow as pa


def plain(kind: pa.DataType) -> pa.DataType:
    """A type as Spark has it: texts instead of codes, and times in microseconds."""
    is_a = pa.types
    found = kind
    if is_a.is_dictionary(kind):
        found = plain(kind.value_type)
    elif is_a.is_large_string(kind) or is_a.is_string_view(kind):
        found = pa.string()
    elif is_a.is_list(kind) or is_a.is_large_list(kind):
        found = pa.list_(plain(kind.value_type))
    elif is_a.is_struct(kind):
        found = pa.struct([(field.name, plain(field.type)) for field in kind])
    elif is_a.is_map(kind):
        found = pa.map_(plain(kind.key_type), plain(kind.item_type))
    elif is_a.is_timestamp(kind):
        found = pa.timestamp("us", kind.tz)
    elif is_a.is_unsigned_integer(kind):
        found = pa.decimal128(20, 0) if kind.bit_width == 64 else pa.int64()
    return found
