"""Turns the tree of a frame into one SQL statement.

filter, map, limit          one SELECT, as long as each means the same in it
a filter on a new column    reads the SELECT before it, which becomes a WITH entry
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from relquery.frames.block import Block, Steps, free
from relquery.frames.nodes import (
    Best,
    Choose,
    Distinct,
    Extend,
    Group,
    Join,
    Keep,
    Limit,
    Near,
    Node,
    Read,
    Sort,
)
from relquery.sql.names import quoted, quoted_text

ROW = "row_number"
"""The column with the number of a row of the input, from 0, where a statement has it."""
_VALUE = "value"
LEFT, RIGHT = '"left"', '"right"'
EARLIER, LATER = '"earlier"', '"later"'


def compile_frame(node: Node, taken: Iterable[str], *, numbered: bool = False) -> str:
    """The statement of a frame. Registers what it reads.

    taken: names of tables. numbered: with the column `ROW` behind the others; only for frames that
    keep the rows of their input.
    """
    steps = Steps({name.lower() for name in taken})
    return steps.statement(_Compiler(steps, numbered).block(node))


def compile_pairs(node: Join, taken: Iterable[str], *, near: bool) -> tuple[str, str]:
    """Statements about pairs of a join inside its blocking, or outside: how many, and who matches.

    The second lacks a LIMIT: it gives pairs in random order, always the same, with the answer.
    """
    blocking = node.blocking
    assert blocking is not None
    steps = Steps({name.lower() for name in taken})
    left, place, right, other = _Compiler(steps, numbered=False).pairs(node)
    condition = blocking.condition if near else f"({blocking.condition}) IS NOT TRUE"
    source = f"{left}\nJOIN {right}\nON {condition}"
    places = f"{LEFT}.{quoted(place)}, {RIGHT}.{quoted(other)}"
    order = (f"hash({places}, {blocking.seed})", places)
    count = Block(source, (), (("pairs", "count(*)"),))
    matches = Block(source, (), (("matches", node.condition),), order=order)
    return steps.statement(count), steps.statement(matches)


@dataclass(frozen=True, slots=True)
class _Compiler:
    steps: Steps
    numbered: bool

    def block(self, node: Node) -> Block:
        compiled: Block = _RULES[type(node)](self, node)
        return compiled

    def _read(self, node: Read) -> Block:
        table = node.source.register()
        if not self.numbered:
            return Block.over(table, node.columns)
        row = free(ROW, node.columns)
        source = f"(SELECT *, row_number() OVER () - 1 AS {quoted(row)} FROM {table})"
        return Block.over(source, node.columns, (row,))

    def _keep(self, node: Keep) -> Block:
        block = self.block(node.below)
        if block.is_cut or not block.passes(node.reads):
            block = self.steps.step(block)
        return replace(block, where=(*block.where, node.condition))

    def _extend(self, node: Extend) -> Block:
        block = self.block(node.below)
        is_hidden = self._is_ordered_by(block, node.names)
        if block.is_final or is_hidden or not block.passes(node.reads):
            block = self.steps.step(block)
        if not node.is_of_row:  # it sees all rows of its frame, and a later filter none the less
            block = self.steps.step(block) if block.is_cut else block
            return self.steps.step(block.with_items([(node.names[0], node.value)]))
        if not node.is_struct:
            return block.with_items([(node.names[0], node.value)])
        value = free(_VALUE, node.columns)
        block = self.steps.step(block.with_items([(value, node.value)]))
        parts = [
            (name, f"struct_extract({quoted(value)}, {quoted_text(name)})") for name in node.names
        ]
        items = tuple(item for item in block.items if item[0] != value)
        return replace(block, items=items).with_items(parts)

    @staticmethod
    def _is_ordered_by(block: Block, names: tuple[str, ...]) -> bool:
        """Whether ORDER BY would read a new column in place of the old one."""
        old = {name.lower() for name in (*block.inputs, *(name for name, _ in block.items))}
        return bool(block.order) and any(name.lower() in old for name in names)

    def _choose(self, node: Choose) -> Block:
        block = self.block(node.below)
        if block.order or block.is_final:  # they may read a column that is left out or renamed
            block = self.steps.step(block)
        old = dict(block.items)
        items = [(new, old[name]) for new, name in node.pairs]
        return replace(block, items=(*items, *((name, old[name]) for name in block.hidden)))

    def _sort(self, node: Sort) -> Block:
        block, place = self._placed(node.below)
        return replace(block, order=(*node.keys, quoted(place)))

    def _limit(self, node: Limit) -> Block:
        block = self.block(node.below)
        if block.limit is not None or block.offset:
            block = self.steps.step(block)
        return replace(block, limit=node.count, offset=node.offset)

    def _best(self, node: Best) -> Block:
        value = free(_VALUE, node.columns)
        scored = Extend(node.below, (value,), node.value, None)
        block, place = self._placed(scored)
        keys = ", ".join(map(quoted, node.by))
        order = f"{quoted(value)} DESC NULLS LAST, {quoted(place)}"
        items = tuple(item for item in block.items if item[0] != value)
        return replace(
            block,
            items=items,
            qualify=f"row_number() OVER (PARTITION BY {keys} ORDER BY {order}) <= {node.count}",
            order=(*(f"{quoted(key)} NULLS LAST" for key in node.by), order),
        )

    def _group(self, node: Group) -> Block:
        block, place = self._placed(node.below)
        keys = tuple(map(quoted, node.by))
        call = f"{node.call} ORDER BY {quoted(place)})"
        items = (*zip(node.by, keys, strict=True), (node.name, call))
        order = tuple(f"{key} NULLS LAST" for key in keys)
        return replace(block, items=items, hidden=(), keys=keys, order=order)

    def _join(self, node: Join) -> Block:
        left, place, hidden = self._side(node.left, LEFT)
        right, other, _ = self._side(node.right, RIGHT)
        kind = {"inner": "", "left": "LEFT ", "semi": "SEMI ", "anti": "ANTI "}[node.how]
        near = [] if node.blocking is None else [node.blocking.condition]
        condition = " AND ".join([*near, node.condition])
        order = [f"{LEFT}.{quoted(place)}"]
        if node.how in ("inner", "left"):
            order.append(f"{RIGHT}.{quoted(other)}")
            hidden = ()
        items = [(name, field.sql) for name, field in node.names]
        items += [(name, f"{LEFT}.{quoted(name)}") for name in hidden]
        source = f"{left}\n{kind}JOIN {right}\nON {condition}"
        return Block(source, (), tuple(items), hidden, order=tuple(order))

    def pairs(self, node: Join) -> tuple[str, str, str, str]:
        """Both sides of a join for FROM, each with the column of its places."""
        left, place, _ = self._side(node.left, LEFT)
        right, other, _ = self._side(node.right, RIGHT)
        return left, place, right, other

    def _near(self, node: Near) -> Block:
        left, place, _ = self._side(node.left, LEFT)
        right, other, _ = self._side(node.right, RIGHT)
        left_on, right_on = f"{LEFT}.{quoted(node.left_on)}", f"{RIGHT}.{quoted(node.right_on)}"
        texts = ", ".join(
            f"(SELECT coalesce(list(DISTINCT {on} ORDER BY {on}) "
            f"FILTER ({on} IS NOT NULL), []) FROM {side})"
            for on, side in ((left_on, left), (right_on, right))
        )
        near = self._unnested(f"AI_NEAREST({texts}, {node.count})", ("text", "other", "score"))
        score = f"{near}.score"
        places = f"{score} DESC, {RIGHT}.{quoted(other)}"
        mine = f"{LEFT}.{quoted(place)}"
        items = [(name, field.sql) for name, field in node.names]
        return Block(
            f"{left}\nJOIN {near} ON {left_on} = {near}.text\n"
            f"JOIN {right} ON {right_on} = {near}.other",
            (),
            (*items, (node.score, score)),
            qualify=f"row_number() OVER (PARTITION BY {mine} ORDER BY {places}) <= {node.count}",
            order=(mine, places),
        )

    def _distinct(self, node: Distinct) -> Block:
        block, place = self._placed(node.below)
        rows = self.steps.entry(self._with_place(block, place).sql())
        columns, hidden, column = block.columns, block.hidden, quoted(node.column)
        if node.asks is not None:
            key = quoted(place)
            rows = self.steps.entry(  # the first of identical texts, which need no call
                f"SELECT * FROM {rows}\nWHERE {key} IN (SELECT min({key}) FROM {rows} "
                f"GROUP BY {column}, CASE WHEN {column} IS NULL THEN {key} END)"
            )
            near = f"AI_SIMILARITY({EARLIER}.{column}, {LATER}.{column}) >= {node.threshold!r}"
            source = (
                f"{rows} AS {LATER}\nANTI JOIN {rows} AS {EARLIER}\n"
                f"ON {EARLIER}.{quoted(place)} < {LATER}.{quoted(place)} AND {near} "
                f"AND {node.asks}"
            )
            items = tuple((name, f"{LATER}.{quoted(name)}") for name in columns + hidden)
            return Block(source, (), items, hidden, order=(f"{LATER}.{quoted(place)}",))
        texts = (
            f"SELECT coalesce(list({column} ORDER BY {quoted(place)}) "
            f"FILTER ({column} IS NOT NULL), []) FROM {rows}"
        )
        first = self._unnested(f"AI_DUPLICATES(({texts}), {node.threshold!r})", ("text", "first"))
        kept = self.steps.entry(
            f"SELECT min({rows}.{quoted(place)}) AS {quoted(place)}\n"
            f"FROM {rows}\nLEFT JOIN {first} ON {first}.text = {rows}.{column}\n"
            f"GROUP BY {first}.first, CASE WHEN {rows}.{column} IS NULL "
            f"THEN {rows}.{quoted(place)} END"
        )
        over = Block.over(rows, columns, hidden)
        over = replace(over, inputs=(*over.inputs, place))
        return replace(
            over,
            where=(f"{quoted(place)} IN (FROM {kept})",),
            order=(quoted(place),),
        )

    def _unnested(self, call: str, names: tuple[str, ...]) -> str:
        """The name of an entry with a row for each struct of a list."""
        parts = ", ".join(
            f"struct_extract(one, {quoted_text(name)}) AS {quoted(name)}" for name in names
        )
        return self.steps.entry(f"SELECT {parts}\nFROM (SELECT unnest({call}) AS one)")

    def _placed(self, node: Node) -> tuple[Block, str]:
        """The rows of a node, and the column of its source that has their places."""
        block = self.block(node)
        if block.order or block.is_cut or not block.passes(None):
            block = self.steps.step(block)
        return block.placed()

    @staticmethod
    def _with_place(block: Block, place: str) -> Block:
        """The rows with their places, and in any order."""
        return replace(block, items=(*block.items, (place, quoted(place))))

    def _side(self, node: Node, name: str) -> tuple[str, str, tuple[str, ...]]:
        """A side of a join for FROM, the column with the places of its rows, and hidden columns."""
        block = self.block(node)
        if block.order or block.is_cut or block.where or not block.passes(None):
            block = self.steps.step(block)
        placed, place = block.placed()
        return f"{placed.source} AS {name}", place, block.hidden


_RULES: dict[type[Node], Callable[[_Compiler, Any], Block]] = {
    Read: _Compiler._read,
    Keep: _Compiler._keep,
    Extend: _Compiler._extend,
    Choose: _Compiler._choose,
    Sort: _Compiler._sort,
    Limit: _Compiler._limit,
    Best: _Compiler._best,
    Group: _Compiler._group,
    Join: _Compiler._join,
    Near: _Compiler._near,
    Distinct: _Compiler._distinct,
}
