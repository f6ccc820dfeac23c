"""Templates, and the prompts of a schedule: each built when it is read, with prefixes to mark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, pairwise
from string import Formatter

import numpy as np
import pyarrow as pa

from relquery.arrays import Int32s, Int64s
from relquery.errors import ConfigError, did_you_mean, type_of
from relquery.lazy import AT_ONCE, LazySequence
from relquery.prices.price import Price
from relquery.prices.table import all_prices, find_price, known_price
from relquery.reordering.cost.billing import Bill, Blocks, Marks, bill
from relquery.reordering.cost.measure import Fields
from relquery.reordering.cost.tokens import Encode, EstimatedTokens, tokenize
from relquery.reordering.items import BAG_LABEL, Items

FIELDS = "fields"
_NAMES = ("name", "value")
_LABELLED = "{name}: {value}"


@dataclass(frozen=True, slots=True)
class Template:
    """The parts of a prompt that are the same for all rows.

    Raises ConfigError for a text that is not of this form.
    """

    text: str = "{fields}"
    """The question. `{fields}` stands for the fields, one per line; without it they follow the
    text, after a line break. Write {{ or }} for a brace."""
    system: str = ""
    """The system text; empty for none."""
    field: str = _LABELLED
    """How a field is written, without its line break. `{name}` is the column ("passage" in a bag),
    `{value}` the cell; NULL is empty text. `reorder` counts tokens of the default, in which a
    column without a name is the value alone."""

    def __post_init__(self) -> None:
        for name in ("text", "system", "field"):
            if not isinstance(value := getattr(self, name), str):
                raise ConfigError(f"{name} of the template is {type_of(value)}; it must be text.")
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise ConfigError(
                    f"{name} of the template is not valid Unicode: {error}. Remove lone surrogates."
                ) from error
        if self.system and not self.system.strip():
            raise ConfigError("system of the template is blank. Write a text, or leave it out.")
        named = [name for _, name in _read(self.text, "template", (FIELDS,)) if name]
        if len(named) > 1:
            raise ConfigError(
                "The template has {fields} twice, but fields are sent once. Keep one."
            )
        if "value" not in (name for _, name in _read(self.field, "field", _NAMES)):
            raise ConfigError(
                f"The field {self.field!r} does not have {{value}}, so cells would be lost. "
                "Write it where the cell goes."
            )

    @classmethod
    def of(cls, given: object) -> Template:
        """A template, or its text."""
        if isinstance(given, Template):
            return given
        if isinstance(given, str):
            return cls(given)
        raise ConfigError(f"template is {type_of(given)}; it must be text or an rq.Template.")

    @property
    def head(self) -> str:
        """The text before the fields."""
        before, name = _read(self.text, "template", (FIELDS,))[0]
        if name or not before or before.endswith("\n"):
            return before
        return f"{before}\n"

    @property
    def tail(self) -> str:
        """The text after the line break of the last field."""
        _, *after = _read(self.text, "template", (FIELDS,))
        return "".join(text for text, _ in after).removeprefix("\n")

    @property
    def prefix(self) -> str:
        """The text that all prompts begin with. Give it to `reorder` as `prefix`."""
        return self.system + self.head

    def line(self, name: str, value: str) -> str:
        """A field as written, with its line break."""
        if self.field == _LABELLED:
            return f"{name}: {value}\n" if name else f"{value}\n"
        parts = _read(self.field, "field", _NAMES)
        filled = {"name": name, "value": value, None: ""}
        return "".join(text + filled[key] for text, key in parts) + "\n"


def _read(text: str, what: str, known: tuple[str, ...]) -> list[tuple[str, str | None]]:
    """Literal texts, each with the name in the braces after it, or None at the end.

    Neighbouring literals are joined. Raises ConfigError.
    """
    names = " and ".join(f"{{{name}}}" for name in known)
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise ConfigError(
            f"The {what} {text!r} has a single brace: {error}. Double each brace that is not part "
            f"of {names}: {{{{ or }}}}."
        ) from error
    read: list[tuple[str, str | None]] = []
    before = ""
    for literal, name, form, conversion in parsed:
        before += literal
        if name is None:
            continue
        if name not in known or form or conversion:
            written = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            hint = "" if name in known else did_you_mean(name, known)
            raise ConfigError(
                f"The {what} has {{{written}}}, but it can only have {names}. Single columns "
                f"cannot be named; {{fields}} has all of them. For braces, write "
                f"{{{{{written}}}}}.{hint}"
            )
        read.append((before, name))
        before = ""
    return [*read, (before, None)] if before or not read else read


Cells = dict[int, tuple[str, str]]
"""By item: the name that is written for its column, and its text."""


@dataclass(frozen=True, slots=True, eq=False)
class TableSource:
    """A table and how it was measured.

    encode: gives token ids; None: tokens are estimated from words. price: None if the order was not
    chosen by cost. requests_per_minute: see `reorder`.
    """

    items: Items
    encode: Encode | None
    price: Price | None
    requests_per_minute: float | None

    @property
    def count(self) -> int:
        """Rows of the table."""
        return int(self.items.slots.shape[1])

    def sent(self, rows: Int64s, fields: Fields) -> Int32s:
        """(n, m), the items of some rows in the order sent."""
        items = self.items
        return items.same[items.slots[fields, rows[:, None]]]

    def cells(self, sent: Int32s) -> Cells:
        """The texts of some items. NULL is empty text."""
        items, cells = self.items, Cells()
        wanted = np.unique(sent)
        columns = np.searchsorted(items.offsets, wanted, side="right") - 1
        for column in np.unique(columns).tolist():
            chosen = wanted[columns == column]
            texts = items.texts[column].take(pa.array(chosen - items.offsets[column]))
            name = BAG_LABEL if items.in_bag(column) else items.names[column]
            for item, text in zip(chosen.tolist(), texts.to_pylist(), strict=True):
                cells[item] = name, text or ""
        return cells

    def sizes(self, template: Template) -> Int64s:
        """(items,), tokens of the line of each distinct item."""
        encode = self.encode or EstimatedTokens()
        lengths = [
            tokenize([template.line(*cell) for cell in self.cells(part).values()], encode).lengths
            for part in self._distinct()
        ]
        return np.concatenate([np.empty(0, np.int64), *lengths])

    def _distinct(self) -> Iterator[Int32s]:
        """The numbers of all items with a text of their own, some at a time."""
        count = int(self.items.offsets[-1])
        for start in range(0, count, AT_ONCE):
            yield np.arange(start, min(start + AT_ONCE, count), dtype=np.int32)

    def size_of(self, text: str) -> int:
        """Tokens of a text."""
        return len(tokenize([text], self.encode or EstimatedTokens()).ids) if text else 0

    def digests(self, rows: Int64s) -> Iterator[str]:
        """Of each row's cells and the names of its columns, in the table's order.

        The same for every schedule and template. NULL counts as empty text, as in prompts.
        """
        names = blake2b("\0".join(self.items.names).encode(), digest_size=4)
        for start in range(0, len(rows), AT_ONCE):
            items = self.items.slots[:, rows[start : start + AT_ONCE]]
            sent = self.items.same[items].T
            cells = self.cells(sent)
            for row in sent.tolist():
                digest = names.copy()
                for item in row:
                    digest.update(f"\0{cells[item][1]}".encode())
                yield digest.hexdigest()


@dataclass(frozen=True, slots=True)
class RowPrompt:
    """One row's prompt.

    row: its number in the table, from 0. columns: the names of its fields, in the order sent.
    parts: the text before the fields, each field with its line break, the text after the fields.
        Joined they are `text`.
    breakpoints: after how many parts a prefix to be cached ends, ascending. For each `b` of them,
        the cache keeps the system text and `parts[:b]`.
    """

    row: int
    system: str
    columns: tuple[str, ...]
    parts: tuple[str, ...]
    breakpoints: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The prompt without the system text."""
        return "".join(self.parts)

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Where each field begins and ends in `text`, its line break included."""
        ends = [*accumulate(map(len, self.parts))][:-1]
        return tuple(pairwise(ends))


class Prompts(LazySequence[RowPrompt]):
    """The prompts of some rows in the order to send.

    bill: what the provider charges if they are sent one after the other; None without a price, for
        a price without breakpoints, and for a part.
    """

    def __init__(
        self,
        source: TableSource,
        template: Template,
        rows: Int64s,
        fields: Fields,
        breakpoints: Marks | None = None,
        bill: Bill | None = None,
    ) -> None:
        """breakpoints: in parts, see RowPrompt."""
        super().__init__(np.arange(len(rows)), self._prompts)
        self._source, self._template = source, template
        self._rows, self._fields = rows, fields
        self._breakpoints, self.bill = breakpoints, bill

    @property
    def rows(self) -> Int64s:
        """(n,), numbers in the table, in the order to send."""
        return self._rows[self._places]

    def part(self, some: Int64s | slice) -> Prompts:
        """Some of them, by their place in the order, with their breakpoints and without a bill."""
        selected = super().part(some)
        selected.bill = None
        return selected

    def custom_ids(self) -> Iterator[str]:
        """The id of each request, in this order: its row's number in the table, and a digest of
        cells and column names.

        Results come in any order, perhaps in another process and days later. The number says where
        an answer belongs, and the digest whether that row is still the one that was asked about.
        Providers accept up to 64 letters, digits, hyphens and underscores.
        """
        digests = self._source.digests(self.rows)
        for row, digest in zip(self.rows.tolist(), digests, strict=True):
            yield f"row-{row}-{digest}"

    def __repr__(self) -> str:
        return f"<Prompts: {len(self):,} prompts>"

    def _prompts(self, places: Int64s) -> Iterator[RowPrompt]:
        template, names, marks = self._template, self._source.items.names, self._breakpoints
        rows, fields = self._rows[places], self._fields[places]
        sent = self._source.sent(rows, fields)
        lines = {item: template.line(*cell) for item, cell in self._source.cells(sent).items()}
        system, head, tail = template.system, template.head, template.tail
        orders = zip(places.tolist(), rows.tolist(), fields.tolist(), sent.tolist(), strict=True)
        for place, row, columns, items in orders:
            yield RowPrompt(
                row,
                system,
                tuple([names[column] for column in columns]),
                (head, *[lines[item] for item in items], tail),
                () if marks is None else marks[place],
            )


_ID = re.compile(r"row-(0|[1-9][0-9]*)-([0-9a-f]{8})")


def read_id(text: object) -> tuple[int, str] | None:
    """(row, digest); None for what is not one of `custom_ids`."""
    match = _ID.fullmatch(text) if isinstance(text, str) else None
    return None if match is None else (int(match[1]), match[2])


def prompts(
    source: TableSource, template: Template, rows: Int64s, fields: Fields, price: Price | None
) -> Prompts:
    """The prompts of some rows; with breakpoints and their bill if the price has breakpoints."""
    if price is None or not price.breakpoints:
        return Prompts(source, template, rows, fields)
    blocks = blocks_of(source, template, rows, fields)
    charged = bill(blocks, price, requests_per_minute=source.requests_per_minute)
    headless = 0 if source.size_of(template.prefix) else 1
    marks = _in_parts(charged.breakpoints, blocks, headless)
    return Prompts(source, template, rows, fields, marks, charged)


def blocks_of(source: TableSource, template: Template, rows: Int64s, fields: Fields) -> Blocks:
    """Prompts as blocks: system text and text before the fields, each field, text after them."""
    return Blocks.of(
        source.sent(rows, fields),
        source.sizes(template),
        source.size_of(template.prefix),
        source.size_of(template.tail),
    )


def price_of(given: str | Price | None, source: TableSource, model: str | None) -> Price | None:
    """The price that marks are chosen for: the given one, the model's, or that of `reorder`.

    An rq.Price that the user made for `reorder` has precedence over the model's. Raises ConfigError
    for an unknown name.
    """
    if isinstance(given, Price):
        return given
    if isinstance(given, str):
        return find_price(given)
    if given is not None:
        raise ConfigError(f"price is {given!r}; it must be an rq.Price or the name of one.")
    is_own = source.price is not None and source.price.name not in all_prices()
    of_model = known_price(model) if isinstance(model, str) and not is_own else None
    return of_model or source.price


def _in_parts(marks: Marks, blocks: Blocks, shift: int) -> Marks:
    """Breakpoints in parts. marks: in tokens. shift: parts before all others that have no block."""
    merged: Marks = []
    for start in range(0, len(marks), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        ends = Blocks(blocks.ids[some], blocks.sizes).ends
        for row, own in zip(ends, marks[some], strict=True):
            merged.append(tuple((np.searchsorted(row, own) + 1 + shift).tolist()) if own else ())
    return merged
