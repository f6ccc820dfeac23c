"""The prompt of a call (paper 000, appendix C): system text, query, fields as JSON.

A field whose place in the query's text is fixed stands there as plain text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from typing import Literal

from relquery.errors import QueryError
from relquery.ir.lower import lower
from relquery.ir.nodes import Seq, Text
from relquery.prompt import Nest, Prompt, Reuse, Role, Span
from relquery.sql.types.leaves import NUMBERS
from relquery.table.measure import Fields

SYSTEM = (
    "You are a data analyst. Use the provided JSON data to answer the user query based on the "
    "specified fields. Respond with only the answer, no extra formatting."
)
SYSTEM_OF_TEXT = (
    "You are a data analyst. Answer the user query. Respond with only the answer, no extra "
    "formatting."
)
SEPARATOR = ",\n"

# How a cell is written: as a JSON string, or unchanged because it already is JSON. A bag is a list
# of such cells, each a field of its own.
Form = Literal["string", "json", "bag of strings", "bag of json"]
OF_ITEM: dict[Form, Form] = {"bag of strings": "string", "bag of json": "json"}
"""The form of the items of a bag; other forms are no bags."""

Query = tuple[str | int, ...]
"""The text of a query; a number stands for the text of that field."""

_TAIL = Text("\n}")
_BLANKS = "e' \\t\\n\\r'"
_NOT_JSON = {"nan", "inf", "-inf"}
_MOST_PARTS = 1 << 14  # that a template keeps: cells of many rows, not those of a million texts
_dump = json.JSONEncoder(ensure_ascii=False).encode


class Template:
    """The prompts of one call. Parts that many rows have are made once for all of them.

    query: its text. pieces: per field, the text of each distinct cell; see `piece`. modules: fields
    whose pieces are independent spans (paper 001): computed once, whatever is around them.
    bags: the columns of each bag (see Inputs), in which a piece may be empty: that is no item.
    as_written: the columns in the order of the query's fields. separator: between two fields.
    """

    def __init__(
        self,
        query: Query,
        pieces: Sequence[Sequence[str]],
        modules: Collection[int] = (),
        bags: Sequence[tuple[int, ...]] = (),
        separator: str = SEPARATOR,
    ) -> None:
        self._query, self._pieces, self._has_bags = query, pieces, bool(bags)
        of_bag = {bag[0]: bag for bag in bags}
        fields = len(pieces) - sum(len(bag) - 1 for bag in bags)
        self.as_written = [one for at in range(fields) for one in of_bag.get(at, (at,))]
        self._pinned = pinned_in(query)
        self._has_data = len(pieces) > len(self._pinned)
        self._end = lower(_TAIL)
        self._heads: dict[tuple[int, ...], Prompt] = {}
        # By field, what is sent for a cell if another field follows, and if none does.
        self._most = _MOST_PARTS // (2 * max(len(pieces), 1))
        self._inner, self._last = (
            [parts(texts, at in modules, after, self._most) for at, texts in enumerate(pieces)]
            for after in (separator, "")
        )

    def led_by(self, fields: Fields) -> Template:
        """The template for prompts whose fields are sent so. fields: (rows, fields)."""
        return self

    def prompt(self, cells: Sequence[int], order: Sequence[int]) -> Prompt:
        """The prompt of a row. cells: piece number per field; order: in which fields are sent.

        Fields in the query's text may be left out of the order.
        """
        begin = self._head(tuple(cells[field] for field in self._pinned))
        if not self._has_data:
            return begin
        if self._pinned:
            order = [field for field in order if field not in self._pinned]
        if self._has_bags:
            order = [field for field in order if self._pieces[field][cells[field]]]
            if not order:
                return (*begin, *self._end)
        return (*begin, *self._spans(cells, order), *self._end)

    def _spans(self, cells: Sequence[int], order: Sequence[int]) -> list[Span]:
        """The fields as sent; there is at least one."""
        *before, last = order
        spans = list[Span]()
        for field in before:
            spans += self._inner[field](cells[field])
        spans += self._last[last](cells[last])
        return spans

    def _head(self, cells: tuple[int, ...]) -> Prompt:
        """The text before the data. cells: piece numbers of the fields in it."""
        if cells not in self._heads:
            texts = {
                field: self._pieces[field][cell]
                for field, cell in zip(self._pinned, cells, strict=True)
            }
            query = "".join(texts[part] if isinstance(part, int) else part for part in self._query)
            if len(self._heads) == _MOST_PARTS:
                self._heads.clear()
            self._heads[cells] = self._head_of(query)
        return self._heads[cells]

    def _head_of(self, query: str) -> Prompt:
        head = f"Answer the below query:\n{query}"
        if self._has_data:
            head += "\n\nGiven the following data:\n{\n"
        has_json = self._has_data or not self._pinned
        system = Text(SYSTEM if has_json else SYSTEM_OF_TEXT, Role.SYSTEM)
        return lower(Seq((system, Text(head))))


def parts(
    texts: Sequence[str], is_module: bool, after: str, most: int, before: str = ""
) -> Callable[[int], Prompt]:
    """What is sent for a cell of a field, by the number of its piece.

    texts: the pieces. before, after: what goes around each. most: how many are kept.
    """
    part = partial(_module, texts, after) if is_module else partial(_part, texts, before, after)
    return lru_cache(most)(part)


def _part(texts: Sequence[str], before: str, after: str, cell: int) -> Prompt:
    # As `lower` makes it of a text in a Bag, which takes ten times as long.
    return (Span(before + texts[cell] + after),)


def _module(texts: Sequence[str], after: str, cell: int) -> Prompt:
    module = Span(Nest((Span(texts[cell]),)), Role.USER, Reuse.INDEPENDENT, keep=1)
    return (module, Span(after)) if after else (module,)


def piece(name: str, form: Form, cell: str | None) -> str:
    """A field of a row as sent: a label and a cell in JSON."""
    return f"{_dump(name)}: {json_of(cell, form)}"


def cell_of(name: str, form: Form, text: str) -> str | None:
    """The cell of a piece. NULL for JSON null, which is sent alike."""
    written = text[len(_dump(name)) + 2 :]
    if written == "null":
        return None
    return str(json.loads(written)) if form == "string" else written


def list_of(name: str, texts: Sequence[str]) -> str:
    """The items of a bag as a JSON list. texts: their pieces; an empty one is no item."""
    begin = len(_dump(name)) + 2
    return f"[{', '.join(text[begin:] for text in texts if text)}]"


def pinned_in(query: Query) -> tuple[int, ...]:
    """The fields whose place is fixed in a query's text, in the order of the text."""
    return tuple(dict.fromkeys(part for part in query if isinstance(part, int)))


def plain_piece(cell: str | None) -> str:
    """A field in the text of a query, as sent."""
    return "null" if cell is None else cell


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


def as_text(expression: str, sql_type: str) -> tuple[str, Form]:
    """SQL that writes a value of DuckDB type `sql_type` as text, and the form of that text."""
    if sql_type in (*NUMBERS, "BOOLEAN"):
        return f"CAST({expression} AS VARCHAR)", "json"
    if sql_type == "JSON":  # as written: to_json would round numbers
        return f"trim(CAST({expression} AS VARCHAR), {_BLANKS})", "json"
    if sql_type == "VARIANT" or _is_nested(sql_type):
        return f"CAST(to_json({expression}) AS VARCHAR)", "json"
    return f"CAST({expression} AS VARCHAR)", "string"


def _is_nested(sql_type: str) -> bool:
    return sql_type.endswith("]") or sql_type.startswith(("STRUCT(", "MAP(", "UNION("))


def json_of(cell: str | None, form: Form) -> str:
    """A cell as JSON."""
    if cell is None:
        return "null"
    if form == "json" and cell not in _NOT_JSON:
        return cell
    return _dump(cell)
