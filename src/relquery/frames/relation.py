"""The rows of a frame as one SELECT in the making: verbs add to it while it means the same.

filter, map, limit          one SELECT, as long as each means the same in it
a filter on a new column    reads the SELECT before it, which becomes a WITH entry
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from relquery.frames.expressions import NamedColumn, Reads
from relquery.sql.names import quoted, quoted_text

if TYPE_CHECKING:
    from relquery.frames.data import FrameSource

How = Literal["inner", "left", "semi", "anti"]
LEFT, RIGHT = '"left"', '"right"'
EARLIER, LATER = '"earlier"', '"later"'
_PLACE, _ROW, _VALUE = "place", "row_number", "value"
_MOST_LEFT_OUT = 1
"""Columns that `* EXCLUDE (...)` names; where more are left out, those that stay are named."""


@dataclass(frozen=True, slots=True)
class Block:
    """One SELECT."""

    source: str
    """What is behind FROM."""
    inputs: tuple[str, ...]
    """The columns of the source."""
    items: tuple[tuple[str, str], ...]
    """The result in its order, as (name, SQL)."""
    rows: tuple[str, ...] = ()
    """Items at the end with the numbers of rows of the tables that were read."""
    where: tuple[str, ...] = ()
    keys: tuple[str, ...] | None = None
    """Of GROUP BY; None without it, and empty for one group of all rows."""
    qualify: str = ""
    order: tuple[str, ...] = ()
    limit: int | None = None
    offset: int = 0

    @classmethod
    def over(cls, source: str, columns: tuple[str, ...], rows: tuple[str, ...] = ()) -> Block:
        """All columns of a source, and its numbers of rows at the end."""
        inputs = columns + rows
        return cls(source, inputs, tuple((name, quoted(name)) for name in inputs), rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns of the result."""
        return tuple(name for name, _ in self.items if name not in self.rows)

    @property
    def is_cut(self) -> bool:
        """Whether it leaves out rows by their place."""
        return self.limit is not None or bool(self.offset) or self.is_final

    @property
    def is_final(self) -> bool:
        """Whether its select list cannot have further items."""
        return self.keys is not None or bool(self.qualify)

    def passes(self, reads: Reads) -> bool:
        """Whether the columns that an expression reads are those of the source."""
        if reads is None:  # any of them, and no others
            return self.items == tuple((name, quoted(name)) for name in self.inputs)
        return reads <= {name for name, value in self.items if value == quoted(name)}

    def with_items(self, values: Iterable[tuple[str, str]]) -> Block:
        """More columns, or others in the place of those with the same names."""
        new, old = dict(values), dict(self.items)
        names = extended(tuple(old), tuple(new))
        items = [(name, new.get(name) or old[name]) for name in names]
        items.sort(key=lambda item: item[0] in self.rows)
        return replace(self, items=tuple(items))

    def without(self, name: str) -> Block:
        """Without an item."""
        return replace(self, items=tuple(item for item in self.items if item[0] != name))

    def placed(self) -> tuple[Block, str]:
        """With a column of the source that has the places of its rows, and that column."""
        place = _free(_PLACE, (*self.inputs, *(name for name, _ in self.items)))
        source = f"(SELECT *, row_number() OVER () AS {quoted(place)} FROM {self.source})"
        return replace(self, source=source, inputs=(*self.inputs, place)), place

    def in_its_order(self) -> Block:
        """With the order that its rows have anyway, as SQL joins only what is in a known order."""
        if self.keys is not None:
            return replace(self, order=(quoted(self.items[0][0]),))
        block, place = self.placed()
        return replace(block, order=(quoted(place),))

    def sql(self) -> str:
        """As text."""
        lines = [f"SELECT {self._select()}", f"FROM {self.source}"]
        if self.where:
            lines.append(f"WHERE {' AND '.join(self.where)}")
        if self.keys:
            lines.append(f"GROUP BY {', '.join(self.keys)}")
        if self.qualify:
            lines.append(f"QUALIFY {self.qualify}")
        if self.order:
            lines.append(f"ORDER BY {', '.join(self.order)}")
        if self.limit is not None:
            lines.append(f"LIMIT {self.limit}")
        if self.offset:
            lines.append(f"OFFSET {self.offset}")
        return "\n".join(lines)

    def _select(self) -> str:
        """The select list: with a star, if all columns of the source begin the result."""
        passed = tuple((name, quoted(name)) for name in self.inputs)
        kept = len(passed)
        while kept and self.items[:kept] != passed[:kept]:
            kept -= 1
        more = [_item(name, value) for name, value in self.items[kept:]]
        if kept and kept == len(passed):
            return ", ".join(["*", *more])
        left = ", ".join(map(quoted, self.inputs[kept:]))
        names = {name for name, _ in self.items[kept:]}
        if kept and len(passed) - kept <= _MOST_LEFT_OUT and not names & set(self.inputs):
            return ", ".join([f"* EXCLUDE ({left})", *more])
        return ", ".join(_item(name, value) for name, value in self.items)


@dataclass(slots=True)
class Steps:
    """The WITH entries of a statement in the making."""

    taken: set[str]
    """Names in lower case that entries cannot have."""
    columns: set[str] = field(default_factory=set)
    """Names in lower case that a number of rows cannot have."""
    is_numbered: bool = False
    """Whether the result also has the numbers of rows of the tables that it reads, from 0."""
    entries: list[str] = field(default_factory=list)
    count: int = 0

    def step(self, block: Block) -> Block:
        """A block that reads the result of another, which becomes an entry."""
        if (block.limit is not None or block.offset) and not block.order:
            block = block.in_its_order()
        return Block.over(self.entry(block.sql()), block.columns, block.rows)

    def entry(self, sql: str) -> str:
        """The name of a new entry."""
        self.count += 1
        while f"step_{self.count}" in self.taken:
            self.count += 1
        name = f"step_{self.count}"
        self.entries.append(f"{name} AS (\n{sql}\n)")
        return name

    def numbered(self) -> str:
        """The name of a new column with the numbers of rows."""
        name = _free(_ROW, self.columns)
        self.columns.add(name)
        return name

    def unnested(self, call: str, *names: str) -> str:
        """The name of an entry with a row for each struct of a list."""
        parts = ", ".join(
            f"struct_extract(one, {quoted_text(name)}) AS {quoted(name)}" for name in names
        )
        return self.entry(f"SELECT {parts}\nFROM (SELECT unnest({call}) AS one)")

    def statement(self, block: Block) -> str:
        """The whole statement."""
        before = f"WITH {', '.join(self.entries)}\n" if self.entries else ""
        return before + block.sql()


Write = Callable[[Steps], Block]
Names = Mapping[str, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Relation:
    """The rows of a frame. Each verb gives a new one.

    Expressions are SQL over its columns. `reads` are the columns that one reads; None for SQL
    that the user wrote.
    """

    write: Write
    """Adds to a statement what gives the rows. Registers the tables that it reads."""
    columns: tuple[str, ...]
    sources: tuple[FrameSource, ...]
    """The tables that it reads, each as often as it is read."""
    untouched: Names
    """Columns that no verb has changed: of which of the sources, and their names there."""
    keeps_rows: bool = True
    """Whether each row is a row of the first source."""
    blocked: tuple[BlockedJoin, ...] = ()
    """Joins in it that leave out pairs."""
    known: frozenset[str] = frozenset()
    """Columns of all frames that it was made of."""

    @classmethod
    def read(cls, source: FrameSource, columns: tuple[str, ...]) -> Relation:
        """The rows of a table. columns: known before the table is read."""

        def write(steps: Steps) -> Block:
            table = source.register()
            if not steps.is_numbered:
                return Block.over(table, columns)
            row = steps.numbered()
            numbered = f"(SELECT *, row_number() OVER () - 1 AS {quoted(row)} FROM {table})"
            return Block.over(numbered, columns, (row,))

        untouched = {name: (0, name) for name in columns}
        return cls(write, columns, (source,), untouched, known=frozenset(columns))

    def sql(self, tables: Iterable[str], *, is_numbered: bool = False) -> str:
        """The statement. tables: names of tables, which its entries cannot have."""
        known = {name.lower() for name in self.known}
        steps = Steps({name.lower() for name in tables}, known, is_numbered)
        return steps.statement(self.write(steps))

    def keep(self, condition: str, reads: Reads) -> Relation:
        """The rows for which a condition holds."""

        def write(steps: Steps) -> Block:
            block = self.write(steps)
            if block.is_cut or not block.passes(reads):
                block = steps.step(block)
            return replace(block, where=(*block.where, condition))

        return self._with(write)

    def extend(
        self,
        names: tuple[str, ...],
        value: str,
        reads: Reads,
        *,
        is_struct: bool = False,
        is_of_row: bool = True,
    ) -> Relation:
        """New columns, or new values of columns, from one expression; several are fields of it.

        is_of_row: whether the other rows have no part in a row's value.
        """
        columns = extended(self.columns, names)

        def write(steps: Steps) -> Block:
            block = self.write(steps)
            # ORDER BY would read a new column in place of the old one.
            old = {name.lower() for name in (*block.inputs, *(name for name, _ in block.items))}
            hides = bool(block.order) and any(name.lower() in old for name in names)
            if block.is_final or hides or not block.passes(reads):
                block = steps.step(block)
            if not is_of_row:  # it sees all rows of its frame, and a later filter none the less
                block = steps.step(block) if block.is_cut else block
                return steps.step(block.with_items([(names[0], value)]))
            if not is_struct:
                return block.with_items([(names[0], value)])
            whole = _free(_VALUE, columns)
            block = steps.step(block.with_items([(whole, value)])).without(whole)
            parts = (f"struct_extract({quoted(whole)}, {quoted_text(name)})" for name in names)
            return block.with_items(zip(names, parts, strict=True))

        new = {name.lower() for name in names}
        untouched = {
            name: place for name, place in self.untouched.items() if name.lower() not in new
        }
        return self._with(write, columns, untouched)

    def choose(self, pairs: Sequence[tuple[str, str]]) -> Relation:
        """Some columns, as (new name, name)."""

        def write(steps: Steps) -> Block:
            block = self.write(steps)
            if block.order or block.is_final:  # they may read a column that is left out or renamed
                block = steps.step(block)
            old = dict(block.items)
            items = [*((new, old[name]) for new, name in pairs)]
            return replace(block, items=(*items, *((name, old[name]) for name in block.rows)))

        untouched = {new: self.untouched[old] for new, old in pairs if old in self.untouched}
        return self._with(write, tuple(new for new, _ in pairs), untouched)

    def sort(self, *keys: str) -> Relation:
        """Rows in the order of keys, each as SQL; rows that are equal keep their order."""

        def write(steps: Steps) -> Block:
            block, place = self._placed(steps)
            return replace(block, order=(*keys, quoted(place)))

        return self._with(write)

    def limit(self, count: int, offset: int = 0) -> Relation:
        """The first rows, after some that are left out."""

        def write(steps: Steps) -> Block:
            block = self.write(steps)
            if block.limit is not None or block.offset:
                block = steps.step(block)
            return replace(block, limit=count, offset=offset)

        return self._with(write)

    def best(self, value: str, by: Sequence[str], count: int) -> Relation:
        """The rows with the highest values of each group, groups in the order of their keys."""
        score = _free(_VALUE, self.columns)
        scored = self.extend((score,), value, None)

        def write(steps: Steps) -> Block:
            block, place = scored._placed(steps)
            keys = ", ".join(map(quoted, by))
            order = f"{quoted(score)} DESC NULLS LAST, {quoted(place)}"
            ranked = f"row_number() OVER (PARTITION BY {keys} ORDER BY {order})"
            return replace(
                block.without(score),
                qualify=f"{ranked} <= {count}",
                order=(*(f"{quoted(key)} NULLS LAST" for key in by), order),
            )

        return self._with(write)

    def group(self, by: tuple[str, ...], name: str, call: str) -> Relation:
        """One row per group: its keys, and an aggregate over its rows in their order.

        call: SQL of the aggregate without what is behind its arguments.
        """

        def write(steps: Steps) -> Block:
            block, place = self._placed(steps)
            keys = tuple(map(quoted, by))
            items = [*zip(by, keys, strict=True), (name, f"{call} ORDER BY {quoted(place)})")]
            rows = block.rows if by else ()
            items += [(row, f"min({quoted(row)})") for row in rows]
            order = tuple(f"{key} NULLS LAST" for key in keys)
            return replace(block, items=tuple(items), rows=rows, keys=keys, order=order)

        untouched = {key: self.untouched[key] for key in by if key in self.untouched}
        made = self._with(write, extended(by, (name,)), untouched)
        return replace(made, keeps_rows=False)

    def distinct(self, name: str, threshold: float, asks: str | None) -> Relation:
        """The first row of each group of near-duplicates, and rows without a text.

        asks: SQL that confirms a pair of EARLIER and LATER; None: all near rows are duplicates.
        """
        column = quoted(name)

        def write(steps: Steps) -> Block:
            block, place = self._placed(steps)
            key = quoted(place)
            rows = steps.entry(replace(block, items=(*block.items, (place, key))).sql())
            if asks is not None:
                rows = steps.entry(  # the first of identical texts, which need no call
                    f"SELECT * FROM {rows}\nWHERE {key} IN (SELECT min({key}) FROM {rows} "
                    f"GROUP BY {column}, CASE WHEN {column} IS NULL THEN {key} END)"
                )
                near = f"AI_SIMILARITY({EARLIER}.{column}, {LATER}.{column}) >= {threshold!r}"
                pairs = (
                    f"{rows} AS {LATER}\nANTI JOIN {rows} AS {EARLIER}\n"
                    f"ON {EARLIER}.{key} < {LATER}.{key} AND {near} AND {asks}"
                )
                items = tuple((name, f"{LATER}.{quoted(name)}") for name, _ in block.items)
                return Block(pairs, (), items, block.rows, order=(f"{LATER}.{key}",))
            texts = f"SELECT {_texts(column, key)} FROM {rows}"
            first = steps.unnested(f"AI_DUPLICATES(({texts}), {threshold!r})", "text", "first")
            kept = steps.entry(
                f"SELECT min({rows}.{key}) AS {key}\n"
                f"FROM {rows}\nLEFT JOIN {first} ON {first}.text = {rows}.{column}\n"
                f"GROUP BY {first}.first, CASE WHEN {rows}.{column} IS NULL THEN {rows}.{key} END"
            )
            over = Block.over(rows, block.columns, block.rows)
            inputs, condition = (*over.inputs, place), f"{key} IN (FROM {kept})"
            return replace(over, inputs=inputs, where=(condition,), order=(key,))

        return self._with(write)

    def _with(
        self, write: Write, columns: tuple[str, ...] | None = None, untouched: Names | None = None
    ) -> Relation:
        columns = self.columns if columns is None else columns
        untouched = self.untouched if untouched is None else untouched
        known = self.known.union(columns)
        return replace(self, write=write, columns=columns, untouched=untouched, known=known)

    def _placed(self, steps: Steps) -> tuple[Block, str]:
        """The rows, and the column of their source that has their places."""
        block = self.write(steps)
        if block.order or block.is_cut or not block.passes(None):
            block = steps.step(block)
        return block.placed()

    def side(self, steps: Steps, name: str) -> tuple[str, str, tuple[str, ...]]:
        """A side of a join for FROM, the column with the places of its rows, and row numbers."""
        block = self.write(steps)
        if block.order or block.is_cut or block.where or not block.passes(None):
            block = steps.step(block)
        placed, place = block.placed()
        return f"{placed.source} AS {name}", f"{name}.{quoted(place)}", block.rows


Columns = tuple[tuple[str, NamedColumn], ...]
"""Those of a join: their names in the result, and those of a side."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """A limit of a join to pairs whose texts are near."""

    left: str
    """SQL of the texts of the left side."""
    right: str
    threshold: float
    """The least cosine."""
    sample: int
    """How many pairs outside are asked, to measure the recall."""
    seed: int

    @property
    def condition(self) -> str:
        """As SQL over a pair."""
        return f"AI_SIMILARITY({self.left}, {self.right}) >= {self.threshold!r}"


@dataclass(frozen=True, slots=True)
class BlockedJoin:
    """A join that leaves out pairs, to measure what it loses."""

    left: Relation
    right: Relation
    condition: str
    blocking: Blocking

    def pairs(self, tables: Iterable[str], *, near: bool) -> tuple[str, str]:
        """Statements about pairs inside the blocking, or outside: how many, and who matches.

        The second lacks a LIMIT: it gives pairs in random order, always the same, with the answer.
        """
        steps = Steps({name.lower() for name in tables})
        (left, left_on, _), (right, other, _) = (
            self.left.side(steps, LEFT),
            self.right.side(steps, RIGHT),
        )
        inside = self.blocking.condition
        source = f"{left}\nJOIN {right}\nON {inside if near else f'({inside}) IS NOT TRUE'}"
        order = (f"hash({left_on}, {other}, {self.blocking.seed})", f"{left_on}, {other}")
        count = Block(source, (), (("pairs", "count(*)"),))
        matches = Block(source, (), (("matches", self.condition),), order=order)
        return steps.statement(count), steps.statement(matches)


def join(
    left: Relation,
    right: Relation,
    how: How,
    condition: str,
    blocking: Blocking | None,
    names: Columns,
) -> Relation:
    """Pairs of rows for which a condition holds."""
    has_both = how in ("inner", "left")

    def write(steps: Steps) -> Block:
        (left_column, place, mine), (other, its, others) = (
            left.side(steps, LEFT),
            right.side(steps, RIGHT),
        )
        kind = {"inner": "", "left": "LEFT ", "semi": "SEMI ", "anti": "ANTI "}[how]
        near = [] if blocking is None else [blocking.condition]
        order = (place, its) if has_both else (place,)
        source = f"{left_column}\n{kind}JOIN {other}\nON {' AND '.join([*near, condition])}"
        items, rows = _both(names, mine, others if has_both else ())
        return Block(source, (), items, rows, order=order)

    made = _paired(left, right, write, names)
    if blocking is not None:
        whole = BlockedJoin(left, right, condition, blocking)
        made = replace(made, blocked=(*made.blocked, whole))
    return made if has_both else replace(made, sources=left.sources, keeps_rows=left.keeps_rows)


def nearest(
    left: Relation, right: Relation, on: tuple[str, str], count: int, names: Columns, score: str
) -> Relation:
    """Each row of the left with the rows of the right whose texts are nearest, best first."""

    def write(steps: Steps) -> Block:
        (left_column, place, mine), (other, its, others) = (
            left.side(steps, LEFT),
            right.side(steps, RIGHT),
        )
        left_on, right_on = f"{LEFT}.{quoted(on[0])}", f"{RIGHT}.{quoted(on[1])}"
        texts = ", ".join(
            f"(SELECT {_texts(f'DISTINCT {text}', text)} FROM {side})"
            for text, side in ((left_on, left_column), (right_on, other))
        )
        near = steps.unnested(f"AI_NEAREST({texts}, {count})", "text", "other", "score")
        places = f"{near}.score DESC, {its}"
        items, rows = _both((*names, (score, NamedColumn(score, f"{near}.score"))), mine, others)
        return Block(
            f"{left_column}\nJOIN {near} ON {left_on} = {near}.text\n"
            f"JOIN {other} ON {right_on} = {near}.other",
            (),
            items,
            rows,
            qualify=f"row_number() OVER (PARTITION BY {place} ORDER BY {places}) <= {count}",
            order=(place, places),
        )

    made = _paired(left, right, write, names)
    return replace(made, columns=(*made.columns, score), known=made.known | {score})


def _paired(left: Relation, right: Relation, write: Write, names: Columns) -> Relation:
    """Rows of two relations side by side."""
    untouched = {}
    for name, column_name in names:
        is_left = column_name.sql.startswith(f"{LEFT}.")
        side, first = (left, 0) if is_left else (right, len(left.sources))
        if column_name.name in side.untouched:
            place, column = side.untouched[column_name.name]
            untouched[name] = (first + place, column)
    columns = tuple(name for name, _ in names)
    return Relation(
        write,
        columns,
        left.sources + right.sources,
        untouched,
        keeps_rows=False,
        blocked=left.blocked + right.blocked,
        known=left.known.union(right.known, columns),
    )


def _both(
    names: Columns, left: tuple[str, ...], right: tuple[str, ...]
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The items of a join, with the numbers of rows of both sides, and the names of these."""
    numbers = [(row, f"{side}.{quoted(row)}") for side, rows in ((LEFT, left), (RIGHT, right))
               for row in rows]  # fmt: skip
    return (*((name, field.sql) for name, field in names), *numbers), (*left, *right)


def extended(columns: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Columns with more after them; one that differs only in case takes the old one's place."""
    places = {name.lower(): name for name in names}
    kept = tuple(places.pop(column.lower(), column) for column in columns)
    return kept + tuple(places.values())


def _texts(column: str, order: str) -> str:
    """SQL of the list of a column's texts. order: of the list. column: may begin with DISTINCT."""
    text = column.removeprefix("DISTINCT ")
    return f"coalesce(list({column} ORDER BY {order}) FILTER ({text} IS NOT NULL), [])"


def _free(name: str, taken: Iterable[str]) -> str:
    """A name that no column has."""
    names = {name.lower() for name in taken}
    while name in names:
        name += "_"
    return name


def _item(name: str, value: str) -> str:
    return value if value == quoted(name) else f"{value} AS {quoted(name)}"
