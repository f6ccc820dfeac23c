"""A SELECT in the making: verbs are added to it while it means the same; then it is a step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from relquery.frames.expressions import Reads
from relquery.frames.nodes import extended
from relquery.sql.names import quoted


@dataclass(frozen=True, slots=True)
class Block:
    """source: what is behind FROM. inputs: its columns. items: (name, SQL) of the result, in order.

    hidden: columns of the result that are not the user's. keys: those of GROUP BY; None without
    it, and empty for one group of all rows.
    """

    source: str
    inputs: tuple[str, ...]
    items: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    keys: tuple[str, ...] | None = None
    qualify: str = ""
    order: tuple[str, ...] = ()
    limit: int | None = None
    offset: int = 0

    @classmethod
    def over(cls, source: str, columns: tuple[str, ...], hidden: tuple[str, ...] = ()) -> Block:
        """All columns of a source. hidden: those at the end that are not the user's."""
        inputs = columns + hidden
        return cls(source, inputs, tuple((name, quoted(name)) for name in inputs), hidden)

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns of the result."""
        return tuple(name for name, _ in self.items if name not in self.hidden)

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
        new = dict(values)
        names = extended(tuple(name for name, _ in self.items), tuple(new))
        old = dict(self.items)
        items = [(name, new.get(name) or old[name]) for name in names]
        items.sort(key=lambda item: item[0] in self.hidden)
        return replace(self, items=tuple(items))

    def placed(self) -> tuple[Block, str]:
        """With a column of the source that has the places of its rows, and that column."""
        place = free(_PLACE, (*self.inputs, *(name for name, _ in self.items)))
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


_MOST_LEFT_OUT = 1
_PLACE = "place"


def free(name: str, taken: Iterable[str]) -> str:
    """A name that no column has."""
    names = {one.lower() for one in taken}
    while name in names:
        name += "_"
    return name


def _item(name: str, value: str) -> str:
    return value if value == quoted(name) else f"{value} AS {quoted(name)}"


@dataclass(slots=True)
class Steps:
    """The WITH entries of a statement in the making. taken: names that entries cannot have."""

    taken: set[str]
    entries: list[str] = field(default_factory=list)
    count: int = 0

    def step(self, block: Block) -> Block:
        """A block that reads the result of another, which becomes an entry."""
        if (block.limit is not None or block.offset) and not block.order:
            block = block.in_its_order()
        name = self.entry(block.sql())
        names = tuple(name for name, _ in block.items)
        visible = names[: len(names) - len(block.hidden)]
        return Block.over(name, visible, block.hidden)

    def entry(self, sql: str) -> str:
        """The name of a new entry."""
        self.count += 1
        while f"step_{self.count}" in self.taken:
            self.count += 1
        name = f"step_{self.count}"
        self.entries.append(f"{name} AS (\n{sql}\n)")
        return name

    def statement(self, block: Block) -> str:
        """The whole statement."""
        before = f"WITH {', '.join(self.entries)}\n" if self.entries else ""
        return before + block.sql()
