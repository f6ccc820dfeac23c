"""The fields of a call as text: as DuckDB gives them, and as they are sent.

In JSON, a field is a member of an object. As text, the only field of a call goes on to the end of
the prompt as it is, and each of several is a line that begins with its name:

    Is the review positive?

    movietitle: The Cold Bridge
    reviewcontent: The ending felt excellent.

A line break in a value is followed by a space, and values that could be taken for something else
are JSON strings, so different fields never give the same text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relquery.arrays import Bools, Int32s, Int64s
from relquery.errors import QueryError
from relquery.sql.binder.call import json_in_line, label_of
from relquery.sql.exchange.arrow import parts_of
from relquery.sql.names import PREFIX, quoted_text
from relquery.sql.types.leaves import FLOATS, NUMBERS

# How a cell is written: as a JSON string, or unchanged because it already is JSON. A bag is a list
# of such cells, each a field of its own.
Form = Literal["string", "json", "bag of strings", "bag of json"]
OF_ITEM: dict[Form, Form] = {"bag of strings": "string", "bag of json": "json"}
"""The form of the items of a bag; other forms are no bags."""
_NESTED = ("STRUCT(", "MAP(", "UNION(", "TUPLE(")
_UNLIKE_COLUMNS = ("JSON", *FLOATS, "DECIMAL", "BIGNUM")
"""Types that to_json does not write as a column of them is sent: it rounds, or sends Infinity."""
_ITEM = f"{PREFIX}item"
_BLANKS = "e' \\t\\n\\r'"
_NULL = "null"
_NOT_JSON = {"nan", "inf", "-inf"}
# Would look like a new line to some readers.
_OTHER_BREAKS = re.compile("[\v\f\r\x1c-\x1e\x85\u2028\u2029](?!(?<=\r)\n)")
_AT_ONCE = 1 << 16  # cells that are Python objects at one time
_dump = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Cells:
    """The fields of some base rows. They are not kept, since a million rows take much memory.

    names, forms: per field. rows: base rows. read: gives a column of text per field for some base
    rows, in their order.
    """

    names: tuple[str, ...]
    forms: tuple[Form, ...]
    rows: Int64s
    read: Callable[[Int64s], pa.Table]

    def fetch(self) -> pa.Table:
        """A column of text per field; no columns if there are no fields."""
        return self.read(self.rows).rename_columns(list(self.names)) if self.names else pa.table({})

    def part(self, places: Int64s) -> Cells:
        """Some of the rows, by their place in `rows`."""
        return replace(self, rows=self.rows[places])


def are_null(texts: pa.Array, form: Form) -> Bools:
    """(texts,), whether cells are NULL. What is null in JSON is sent alike, and so is no less."""
    if form == "json":
        texts = pc.if_else(pc.equal(texts, "null"), None, texts)
    nulls: Bools = texts.is_null().to_numpy(zero_copy_only=False)
    return nulls


def as_text(expression: str, sql_type: str) -> tuple[str, Form]:
    """SQL that writes a value of DuckDB type `sql_type` as text, and the form of that text."""
    text = f"CAST({expression} AS VARCHAR)"
    if sql_type == "JSON":  # as written: to_json would round numbers
        return f"trim({text}, {_BLANKS})", "json"
    if sql_type in (*NUMBERS, "BOOLEAN"):
        return text, "json"
    is_nested = sql_type.endswith("]") or sql_type.startswith(_NESTED)
    if is_nested and any(name in sql_type for name in _UNLIKE_COLUMNS):
        try:
            return _nested(expression, duckdb.sqltype(sql_type)), "json"
        except duckdb.Error:  # of a tuple without parts
            pass
    if is_nested or sql_type == "VARIANT":
        return f"CAST(to_json({expression}) AS VARCHAR)", "json"
    return text, "string"


def _nested(value: str, kind: Any) -> str:
    """SQL that writes a nested value as JSON, and each part as a column of its type is written."""
    parts = parts_of(kind)
    names = [f"{quoted_text(_dump(name))} || ':' || " for name, _ in parts]
    if kind.id in ("list", "array"):
        return _items(value, "[]", _part(_ITEM, parts[0][1]))
    if kind.id == "map":
        key = f"CAST(to_json(CAST({_ITEM}.key AS VARCHAR)) AS VARCHAR)"
        member = f"{key} || ':' || {_part(f'{_ITEM}.value', parts[1][1])}"
        return _items(f"map_entries({value})", "{}", member)
    if kind.id == "union":
        tags = [quoted_text(tag) for tag, _ in parts]
        values = [
            name + _part(f"union_extract({_ITEM}, {tag})", part)
            for name, tag, (_, part) in zip(names, tags, parts, strict=True)
        ]
        whens = (f"WHEN {tag} THEN {value}" for tag, value in zip(tags, values, strict=True))
        whole = f"'{{' || CASE union_tag({_ITEM}) {' '.join(whens)} END || '}}'"
    else:
        begin, end = "[]" if kind.id == "tuple" else "{}"
        values = [
            ("" if kind.id == "tuple" else name)
            + _part(f"struct_extract_at({_ITEM}, {index})", part)
            for index, (name, (_, part)) in enumerate(zip(names, parts, strict=True), 1)
        ]
        whole = " || ',' || ".join(values)
        whole = f"CASE WHEN {_ITEM} IS NOT NULL THEN '{begin}' || {whole} || '{end}' END"
    return f"list_transform([{value}], lambda {_ITEM}: {whole})[1]"  # the value is computed once


def _items(values: str, around: str, item: str) -> str:
    """SQL that joins what `item` writes for each of a list of values."""
    texts = f"array_to_string(list_transform({values}, lambda {_ITEM}: {item}), ',')"
    return f"'{around[0]}' || {texts} || '{around[1]}'"


def _part(value: str, kind: Any) -> str:
    """SQL that writes a part of a nested value as JSON."""
    text, form = as_text(value, str(kind))
    quoted = f"CAST(to_json({text}) AS VARCHAR)"
    if form == "string":
        text = quoted
    elif str(kind) in FLOATS:
        text = f"CASE WHEN isfinite({value}) THEN {text} ELSE {quoted} END"
    return f"coalesce({text}, '{_NULL}')"


def bag_as_text(name: str, expression: str, sql_type: str) -> tuple[str, Form]:
    """SQL that writes a list as a JSON list of texts, one per item, and the form of that text.

    name: of the field. Raises QueryError if the type is not a list.
    """
    item = sql_type.removesuffix("[]")
    if item == sql_type:
        raise QueryError(
            f"BAG({name}) is of type {sql_type}; a bag must be a list, e.g. passages(...) or "
            "list(column)."
        )
    text, form = as_text("item", item)
    texts = f"list_transform({expression}, lambda item: {text})"
    written: Form = "bag of strings" if form == "string" else "bag of json"
    return f"CAST(to_json({texts}) AS VARCHAR)", written


class JsonWriter:
    """Fields as members of a JSON object, each with its name."""

    separator = ",\n"

    def label(self, name: str) -> str:
        """What is before the value of a field."""
        return f"{_dump(name)}: "

    def value(self, form: Form, cell: str | None) -> str:
        """A cell as sent."""
        if cell is None:
            return _NULL
        return cell if form == "json" and cell not in _NOT_JSON else _dump(cell)

    def piece(self, label: str, form: Form, cell: str | None) -> str:
        """A cell after what tells its field, if anything does."""
        return label + self.value(form, cell)


class TextWriter(JsonWriter):
    """Fields as lines: text as it is where this is clear, everything else as JSON.

    names: of the fields of a call. is_one: whether one of them is the only one that is sent so.
    """

    separator = "\n"

    def __init__(self, names: Sequence[str] = (), *, is_one: bool = False) -> None:
        self.is_one = is_one
        self.line_break = "\n" if is_one else "\n "
        labels = "|".join(re.escape(f"{label_of(name)}: ") for name in dict.fromkeys(names))
        self._named_line = re.compile(labels or "(?!)")

    def label(self, name: str) -> str:
        return "" if self.is_one else f"{label_of(name)}: "

    def value(self, form: Form, cell: str | None) -> str:
        if form == "string" and cell is not None:
            text = json_in_line(cell) if self._misleads(cell) else cell
        else:
            text = super().value(form, cell).strip()
        return text.replace("\n", self.line_break)

    def _misleads(self, text: str) -> bool:
        """Whether a text could be taken for something else if it were sent as it is."""
        if not text or text.isspace() or text == _NULL:
            return True
        if self.is_one:  # a quotation that goes on, or begins later, is not read as a JSON string
            return text[0] == '"' and text[-1] == '"'
        return (
            text[0] == '"'
            or text[0].isspace()
            or (text[-1].isspace() and text[-1] != " ")
            or self._named_line.match(text) is not None
            or _OTHER_BREAKS.search(text) is not None
        )


JSON, TEXT = JsonWriter(), TextWriter()


class Pieces(Sequence[str]):
    """The text that is sent for each distinct cell of a field: strings made when they are read.

    array: the same as large strings, in one block of memory.
    """

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        _, ends, data = array.buffers()
        offsets = np.frombuffer(ends, np.int64)[array.offset : array.offset + len(array) + 1]
        # Of a memoryview, single numbers are read faster than of an array.
        self._offsets, self._data = offsets.data, memoryview(data or b"")

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # nobody takes a slice
        if not 0 <= index < len(self):
            raise IndexError(index)
        return str(self._data[self._offsets[index] : self._offsets[index + 1]], "utf-8")


def write_pieces(
    cells: pa.Array, write: Callable[[str | None], str], *, are_distinct: bool = False
) -> tuple[Pieces, Int64s | None]:
    """What is sent for the distinct cells of a field, and the number of each cell's piece.

    Cells may be written alike: NULL and JSON null. None if no two are. are_distinct: whether this
    is known before.
    """
    texts = _joined(
        [write(cell) for cell in cells.slice(start, _AT_ONCE).to_pylist()]
        for start in range(0, len(cells), _AT_ONCE)
    )
    if are_distinct:
        return Pieces(texts), None
    encoded = texts.dictionary_encode()
    if len(encoded.dictionary) == len(texts):
        return Pieces(texts), None
    return Pieces(encoded.dictionary), encoded.indices.to_numpy()


def write_bags(lists: pa.Array, write: Callable[[str | None], str]) -> tuple[Pieces, Int32s]:
    """(the distinct items of some lists, (lists, most items of a list) with their numbers).

    The first item is empty and stands for none. lists: JSON lists of texts, or NULL for none.
    """
    known = {"": 0}
    rows = [
        [known.setdefault(write(item), len(known)) for item in json.loads(text or "null") or ()]
        for text in lists.to_pylist()
    ]
    items = np.zeros((len(rows), max(map(len, rows), default=0) or 1), np.int32)
    for row, numbers in enumerate(rows):
        items[row, : len(numbers)] = numbers
    return Pieces(pa.array(known, pa.large_string())), items


def _joined(parts: Iterable[list[str]]) -> pa.Array:
    """All texts as one array. The data grows in place, so that it is in memory once."""
    data, ends = bytearray(), [np.zeros(1, np.int64)]
    for part in parts:
        array = pa.array(part, pa.large_string())
        _, offsets, texts = array.buffers()
        ends.append(len(data) + np.frombuffer(offsets, np.int64)[1 : len(array) + 1])
        data += texts or b""
    count = sum(map(len, ends)) - 1
    offsets = pa.py_buffer(np.concatenate(ends))
    return pa.Array.from_buffers(pa.large_string(), count, [None, offsets, pa.py_buffer(data)])
