"""What a query asks for, as a tree. What commutes is a node type: only a `Bag` may be reordered."""

from __future__ import annotations

from dataclasses import dataclass, field

from relquery.errors import QueryError
from relquery.prompt import Role, Sampling


@dataclass(frozen=True, slots=True)
class Text:
    """Literal text, said by `role`."""

    content: str
    role: Role = Role.USER

    def __post_init__(self) -> None:
        if not isinstance(self.content, str):
            raise QueryError(
                f"Text holds a {type(self.content).__name__}; it must hold text. "
                "Write the value as text first."
            )
        if not isinstance(self.role, Role):
            raise QueryError(f"Text has the role {self.role!r}; it must be one of {list(Role)}.")


@dataclass(frozen=True, slots=True)
class Seq:
    """Ordered join: the children one after another."""

    children: tuple[Node, ...]

    def __post_init__(self) -> None:
        _check_children("Seq", self.children)


@dataclass(frozen=True, slots=True)
class Bag:
    """Commutative join: the children in whatever order is cheapest, `separator` between them."""

    children: tuple[Node, ...]
    separator: str = ""

    def __post_init__(self) -> None:
        _check_children("Bag", self.children)


@dataclass(frozen=True, slots=True)
class Generate:
    """The model's answer to `input`."""

    input: Node
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        _check_children("Generate", (self.input,))


Node = Text | Seq | Bag | Generate
_NODES = (Text, Seq, Bag, Generate)


def _check_children(parent: str, children: object) -> None:
    if not isinstance(children, tuple):
        raise QueryError(f"{parent} has a {type(children).__name__} of children; give a tuple.")
    for child in children:
        if not isinstance(child, _NODES):
            raise QueryError(
                f"{parent} has a {type(child).__name__} as a child; it takes Text, Seq, Bag and "
                "Generate nodes. Wrap text in Text(...)."
            )
