"""The tree of a query. Its type says whether a node commutes: only a `Bag` may be reordered.

The operators of span queries (paper 002, Table 1): S, A and U are `Text` with a role, the
non-commutative join is `Seq`, + is a `Bag` that is independent, G is `Generate`; of the sugar, C is
`Chat`, R is `Retrieve` and F is `Fragment`. `Prepare` is G with one token (section 5.1).

A subtree may occur in several places. Trees have at most MAX_NODES nodes, counting a shared one
each time, and are at most MAX_DEPTH levels deep, so that all that walks over them may recurse.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields

from relquery.errors import QueryError, type_of
from relquery.prompt import SPEAKERS, Role, Sampling

MAX_NODES = 20_000_000
MAX_DEPTH = 300
"""Levels below the root of a tree, at most."""
TOO_DEEP = (
    f"The query is nested more than {MAX_DEPTH} levels deep. Write flatter joins, or run the inner "
    "part first and pass its answer as text."
)


class Tree:
    """A node and its descendants. Two trees are equal if their text forms are.

    Not an ABC: rules check node types millions of times, and isinstance is slow for ABCs.
    """

    __slots__ = ()

    @property
    def children(self) -> tuple[Tree, ...]:
        """The child nodes, in order."""
        return ()

    @property
    def depth(self) -> int:
        """Levels of nodes below this one."""
        return 0

    @property
    def size(self) -> int:
        """Nodes in all, counting a shared one each time."""
        return 1

    @property
    def own(self) -> tuple[object, ...]:
        """The node's own values, without its children."""
        return ()

    @property
    def head(self) -> str:
        """The node's line in the text form (see ir.text); for plain kinds, their name."""
        return type(self).__name__.lower()

    def walk(self) -> Iterator[Tree]:
        """This node and all its descendants, parents first, children in order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def __str__(self) -> str:
        lines: list[str] = []
        self._write(lines, "")
        return "\n".join(lines)

    def _write(self, lines: list[str], indent: str) -> None:
        lines.append(indent + self.head)
        for child in self.children:
            child._write(lines, f"{indent}  ")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.head[:60]!r}, children: {len(self.children)}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return self is other or str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Text(Tree):
    """Literal text, said by `role`."""

    content: str
    role: Role = Role.USER

    def __post_init__(self) -> None:
        _check_text("Text", self.content)
        if self.role not in SPEAKERS:
            said = ", ".join(map(str, SPEAKERS))
            raise QueryError(f"Text has the role {self.role!r}; it must be one of {said}.")

    @property
    def own(self) -> tuple[object, ...]:
        return self.content, self.role

    @property
    def head(self) -> str:
        return f"{self.role.value} {_json(self.content)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Seq(Tree):
    """Ordered join: the children in sequence."""

    children: tuple[Node, ...]
    depth: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        _measure(self, self.children)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bag(Tree):
    """Commutative join: the children in the cheapest order, with `separator` between them.

    independent: + of paper 002: each child attends only to itself, and can be reused at any
        position. A generation below it includes its input, as in the cache. Such a bag has no
        separator.
    """

    children: tuple[Node, ...]
    separator: str = ""
    independent: bool = False
    depth: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        _measure(self, self.children)
        _check_text("Bag's separator", self.separator)
        if self.independent and self.separator:
            raise QueryError(
                f"An independent Bag has the separator {self.separator!r}, but its children see "
                "neither each other nor a separator. Put the text into the children."
            )

    @property
    def own(self) -> tuple[object, ...]:
        return self.separator, self.independent

    @property
    def head(self) -> str:
        return "plus" if self.independent else f"bag {_json(self.separator)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Generate(Tree):
    """The model's answer to `input`."""

    input: Node
    sampling: Sampling = field(default_factory=Sampling)
    depth: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        _measure(self, (self.input,))

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def own(self) -> tuple[object, ...]:
        return (self.sampling,)

    @property
    def head(self) -> str:
        return f"generate{_settings(self.sampling)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prepare(Tree):
    """Generates one token and discards it, so that the states of `input` are in the cache.

    It means the same as its input. It exists for engines that compute states only when they
    generate.
    """

    input: Node
    depth: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        _measure(self, (self.input,))

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Chat(Tree):
    """Chat completion: sugar for a Generate over the children in order."""

    children: tuple[Node, ...]
    sampling: Sampling = field(default_factory=Sampling)
    depth: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        _measure(self, self.children)

    @property
    def own(self) -> tuple[object, ...]:
        return (self.sampling,)

    @property
    def head(self) -> str:
        return f"chat{_settings(self.sampling)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Retrieve(Tree):
    """The `limit` fragments of a corpus that match a query best: sugar for a Bag of fragments.

    query: its text is searched for. corpus: the name of the corpus where the query runs.
    """

    query: Node
    corpus: str
    limit: int = 5
    depth: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        _measure(self, (self.query,))
        _check_text("Retrieve's corpus", self.corpus)
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 1:
            raise QueryError(f"Retrieve has the limit {self.limit!r}; it must be at least 1.")

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.query,)

    @property
    def own(self) -> tuple[object, ...]:
        return self.corpus, self.limit

    @property
    def head(self) -> str:
        return f"retrieve {_json(self.corpus)} limit={self.limit}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fragment(Tree):
    """A piece of a corpus: sugar for user text that is prepared on its own."""

    content: str

    def __post_init__(self) -> None:
        _check_text("Fragment", self.content)

    @property
    def own(self) -> tuple[object, ...]:
        return (self.content,)

    @property
    def head(self) -> str:
        return f"fragment {_json(self.content)}"


Node = Text | Seq | Bag | Generate | Prepare | Chat | Retrieve | Fragment
NODES = (Text, Seq, Bag, Generate, Prepare, Chat, Retrieve, Fragment)
_DEFAULTS = Sampling()


def _check_text(name: str, content: object) -> None:
    if not isinstance(content, str):
        raise QueryError(
            f"{name} contains {type_of(content)}; it must contain text. "
            "Convert the value to text first."
        )
    try:
        content.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            f"{name} is not valid Unicode: character {error.start} is half of a surrogate pair."
        ) from None


def _measure(parent: Node, children: object) -> None:
    """Check a new node's children, and note how deep and how large it is."""
    kind, deepest, size = type(parent).__name__, -1, 1
    if not isinstance(children, tuple):
        raise QueryError(f"{kind} has {type_of(children)} of children; they must be a tuple.")
    for child in children:
        if not isinstance(child, NODES):
            raise QueryError(
                f"{kind} has {type_of(child)} as a child; it takes nodes of "
                "relquery.ir.nodes. Wrap text in Text(...)."
            )
        deepest = max(deepest, child.depth)
        size += child.size
    if deepest >= MAX_DEPTH:
        raise QueryError(TOO_DEEP)
    if size > MAX_NODES:
        raise QueryError(too_large(MAX_NODES))
    object.__setattr__(parent, "depth", deepest + 1)
    object.__setattr__(parent, "size", size)


def too_large(most: int) -> str:
    """What is said of a query with too many nodes."""
    return (
        f"The query has more than {most:,} nodes, counting repeats. Repeat less, or split it into "
        "several queries."
    )


def _settings(sampling: Sampling) -> str:
    """Settings that differ from the default, each with a leading space."""
    values = [(setting.name, getattr(sampling, setting.name)) for setting in fields(Sampling)]
    return "".join(
        f" {name}={_json(value)}" for name, value in values if value != getattr(_DEFAULTS, name)
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=asdict)
