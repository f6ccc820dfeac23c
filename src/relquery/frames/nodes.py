"""A frame as a tree: each verb is a node over the frame that it was called on. Nodes never change.

Expressions are SQL over the columns of the node below. `reads` are the columns that one reads; None
for SQL that the user wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from relquery.frames.expressions import Field, Reads

if TYPE_CHECKING:
    from relquery.frames.data import Source

How = Literal["inner", "left", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class Read:
    """The rows of a table. columns: their names, known before the table is read."""

    source: Source
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Over:
    """What a verb makes of the rows of one frame. Has their columns, unless it says others."""

    below: Node

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the result."""
        return self.below.columns


@dataclass(frozen=True, slots=True)
class Keep(_Over):
    """The rows for which a condition holds."""

    condition: str
    reads: Reads


@dataclass(frozen=True, slots=True)
class Extend(_Over):
    """New columns, or new values of columns, from one expression; several are fields of it.

    is_of_row: whether the other rows have no part in a row's value.
    """

    names: tuple[str, ...]
    value: str
    reads: Reads
    is_struct: bool = False
    is_of_row: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """Those before, with a column of the same name replaced."""
        return extended(self.below.columns, self.names)


@dataclass(frozen=True, slots=True)
class Choose(_Over):
    """Some columns, as (new name, name)."""

    pairs: tuple[tuple[str, str], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The new names."""
        return tuple(new for new, _ in self.pairs)


@dataclass(frozen=True, slots=True)
class Sort(_Over):
    """Rows in the order of keys, each as SQL; rows that are equal keep their order."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Limit(_Over):
    """The first rows, after some that are left out."""

    count: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Best(_Over):
    """The rows with the highest values of each group, groups in the order of their keys."""

    value: str
    by: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class Group(_Over):
    """One row per group: its keys, and an aggregate over its rows in their order.

    call: SQL of the aggregate without what is behind its arguments.
    """

    by: tuple[str, ...]
    name: str
    call: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys and the aggregate."""
        return extended(self.by, (self.name,))


@dataclass(frozen=True, slots=True)
class Blocking:
    """Asks only about pairs whose texts are near. left, right: SQL of the texts.

    threshold: the least cosine. sample: how many pairs outside are asked, to measure the recall.
    """

    left: str
    right: str
    threshold: float
    sample: int
    seed: int

    @property
    def condition(self) -> str:
        """As SQL over a pair."""
        return f"AI_SIMILARITY({self.left}, {self.right}) >= {self.threshold!r}"


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows for which a condition holds. names: of (side, column) in the result."""

    left: Node
    right: Node
    how: How
    condition: str
    blocking: Blocking | None
    names: tuple[tuple[str, Field], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of both sides, or of the left one for semi and anti joins."""
        return tuple(name for name, _ in self.names)


@dataclass(frozen=True, slots=True)
class Near:
    """Each row of the left with the rows of the right whose texts are nearest, best first."""

    left: Node
    right: Node
    left_on: str
    right_on: str
    count: int
    names: tuple[tuple[str, Field], ...]
    score: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of both sides, and the score."""
        return (*(name for name, _ in self.names), self.score)


@dataclass(frozen=True, slots=True)
class Distinct(_Over):
    """The first row of each group of near-duplicates, and rows without a text.

    asks: SQL that confirms a pair of "earlier" and "later"; None: all that are near are duplicates.
    """

    column: str
    threshold: float
    asks: str | None


Node = Read | Keep | Extend | Choose | Sort | Limit | Best | Group | Join | Near | Distinct


def extended(columns: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Columns with more after them; one that differs only in case takes the old one's place."""
    places = {name.lower(): name for name in names}
    kept = tuple(places.pop(column.lower(), column) for column in columns)
    return kept + tuple(places.values())


def below(node: Node) -> tuple[Node, ...]:
    """The frames that a node reads."""
    if isinstance(node, Join | Near):
        return node.left, node.right
    return () if isinstance(node, Read) else (node.below,)


def all_columns(node: Node) -> set[str]:
    """The columns of a frame and of all that it reads."""
    return set(node.columns).union(*map(all_columns, below(node)))


def origin(node: Node, name: str) -> tuple[Source, str] | None:
    """The column of a source whose values a column of a frame has; None if a verb has made it."""
    match node:
        case Read():
            return node.source, name
        case Choose():
            return origin(node.below, dict(node.pairs)[name])
        case Join() | Near():
            field = dict(node.names).get(name)  # None for the score
            if field is None:
                return None
            side = node.left if field.sql.startswith('"left".') else node.right
            return origin(side, field.name)
    made: tuple[str, ...] = ()
    if isinstance(node, Extend | Group):
        made = node.names if isinstance(node, Extend) else (node.name,)
    return None if name in made else origin(node.below, name)


def keeps_rows(node: Node) -> bool:
    """Whether each row of a frame is a row of its input."""
    while not isinstance(node, Read):
        if isinstance(node, Group | Near):
            return False
        if isinstance(node, Join):
            if node.how not in ("semi", "anti"):
                return False
            node = node.left
        else:
            node = node.below
    return True
