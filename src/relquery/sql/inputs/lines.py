"""The compact form of a prompt: the query, and one field per line, names said once.

    Is the review positive?

    movietitle, genres, reviewcontent:
    The Cold Bridge
    Drama
    The ending felt excellent.

Lines are in the order of the names above them. From the first field that is sent elsewhere on, each
line begins with its name, `genres: Drama`. A value with line breaks goes on in lines that begin
with a space. Values that could be taken for something else are JSON strings: empty texts, the text
"null", texts that begin with a quote, with white space or like a named line, or end with white
space other than blanks. So different fields never give the same text.

The only field of a call has no name, and its text is sent as it is, line breaks included: it goes
on to the end of the prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from relquery.ir.lower import lower
from relquery.ir.nodes import Text
from relquery.prompt import Prompt, Span
from relquery.sql.binder.naming import label_of, quoted
from relquery.sql.inputs.prompt import (
    OF_ITEM,
    Form,
    Query,
    Template,
    json_of,
    parts,
)
from relquery.table.measure import Fields

BREAK = "\n"
_NULL = "null"
_GOES_ON = "\n "  # a line break in a value
# Would look like a new line to some readers.
_OTHER_BREAKS = re.compile("[\v\f\x1c-\x1e\x85\u2028\u2029]")
_LONE_RETURN = re.compile(r"\r(?!\n)")


@dataclass(frozen=True, slots=True)
class Lines:
    """How the fields of a call are written.

    named_line: matches the beginning of a named line. is_one: whether a field is the only one.
    """

    named_line: re.Pattern[str]
    is_one: bool = False

    @classmethod
    def of(cls, names: Iterable[str], *, is_one: bool = False) -> Lines:
        """For fields of some names."""
        labels = "|".join(re.escape(f"{label_of(name)}: ") for name in dict.fromkeys(names))
        return cls(re.compile(labels or "(?!)"), is_one)

    def value(self, form: Form, cell: str | None) -> str:
        """A cell as sent: text as it is where this is clear, everything else as JSON."""
        if form == "string" and cell is not None:
            text = quoted(cell) if self._misleads(cell) else cell
        else:
            text = json_of(cell, form).strip()
        return text if self.is_one else text.replace("\n", _GOES_ON)

    def cell(self, form: Form, value: str) -> str | None:
        """The cell of a value. NULL for JSON null, which is sent alike."""
        if value == _NULL:
            return None
        if form == "string" and value.startswith('"'):
            return str(json.loads(value))
        return value if self.is_one else value.replace(_GOES_ON, "\n")

    def _misleads(self, text: str) -> bool:
        """Whether a text could be taken for something else if it were sent as it is."""
        if not text or text.isspace() or text == _NULL or text[0] == '"':
            return True
        return not self.is_one and (
            text[0].isspace()
            or (text[-1].isspace() and text[-1] != " ")
            or self.named_line.match(text) is not None
            or _OTHER_BREAKS.search(text) is not None
            or ("\r" in text and _LONE_RETURN.search(text) is not None)
        )

    def named(self, name: str, form: Form, cell: str | None) -> str:
        """A cell after its name."""
        return f"{label_of(name)}: {self.value(form, cell)}"

    def value_in(self, name: str, line: str) -> str:
        """The value in a named line."""
        return line[len(label_of(name)) + 2 :]

    def list_of(self, name: str, form: Form, texts: Sequence[str]) -> str:
        """The items of a bag as a JSON list. texts: their pieces; an empty one is no item."""
        item = OF_ITEM[form]
        cells = (self.cell(item, self.value_in(name, text)) for text in texts if text)
        return f"[{', '.join(json_of(cell, item) for cell in cells)}]"


class LinesTemplate(Template):
    """The prompts of one call in lines; see Template.

    names: of the fields, as in `pieces`. Pieces of modules and bags begin with the name of their
    field, since no place tells it. main: the columns whose names are above the data, in order.
    is_one: see Lines.
    """

    def __init__(
        self,
        query: Query,
        pieces: Sequence[Sequence[str]],
        names: Sequence[str],
        modules: Collection[int] = (),
        bags: Sequence[tuple[int, ...]] = (),
        main: Sequence[int] | None = None,
        *,
        is_one: bool = False,
    ) -> None:
        super().__init__(query, pieces, modules, bags, BREAK)
        self._names, self._modules, self._bags, self._is_one = names, modules, bags, is_one
        self._loose = frozenset((*modules, *(column for bag in bags for column in bag)))
        written = self.as_written if main is None else main
        self.main = self._until_loose([at for at in written if at not in self._pinned])
        self._end: Prompt = ()
        self._inner_named, self._last_named = (
            [self._named(at, after) for at in range(len(pieces))] for after in (BREAK, "")
        )

    def _until_loose(self, columns: Sequence[int]) -> tuple[int, ...]:
        """The columns before the first whose pieces begin with its name."""
        found = [place for place, at in enumerate(columns) if at in self._loose]
        return tuple(columns[: found[0]] if found else columns)

    def _named(self, at: int, after: str) -> Callable[[int], Prompt]:
        if at in self._loose:
            return (self._inner if after else self._last)[at]
        before = f"{label_of(self._names[at])}: "
        return parts(self._pieces[at], False, after, self._most, before)

    def led_by(self, fields: Fields) -> LinesTemplate:
        """The template with the names above the data in the order in which most rows have them.

        fields: (rows, fields), as they will be sent.
        """
        main = self._until_loose(commonest(fields))
        if not len(fields) or main == self.main:
            return self
        return LinesTemplate(
            self._query,
            self._pieces,
            self._names,
            self._modules,
            self._bags,
            main,
            is_one=self._is_one,
        )

    def names_sent(self, fields: Fields) -> int:
        """How many characters of names rows have because they leave the order of most."""
        sizes = np.zeros(len(self._pieces), np.int64)
        for at, name in enumerate(self._names):
            sizes[at] = 0 if at in self._loose else len(label_of(name)) + 2
        has_left, total = np.zeros(len(fields), np.bool_), 0
        for place, at in enumerate(commonest(fields)):
            has_left |= (fields[:, place] != at) | (at in self._loose)
            total += int(sizes[fields[has_left, place]].sum())
        return total

    def _spans(self, cells: Sequence[int], order: Sequence[int]) -> list[Span]:
        spans, in_order, end, main = list[Span](), True, len(order) - 1, self.main
        inner, last = self._inner, self._last
        for place, field in enumerate(order):
            if in_order and (place >= len(main) or main[place] != field):
                in_order, inner, last = False, self._inner_named, self._last_named
            spans += (inner if place < end else last)[field](cells[field])
        return spans

    def _head_of(self, query: str) -> Prompt:
        names = "" if self._is_one else ", ".join(label_of(self._names[at]) for at in self.main)
        data = f"\n\n{names}:\n" if names else "\n\n"
        return lower(Text(query + data if self._has_data else query))


def commonest(fields: Fields) -> list[int]:
    """The order that the most rows follow for as long as possible. fields: (rows, fields)."""
    order, rows = list[int](), fields
    for place in range(fields.shape[1]):
        column = rows[:, place]
        order.append(int(np.bincount(column).argmax()) if len(column) else place)
        rows = rows[column == order[-1]]
    return order
