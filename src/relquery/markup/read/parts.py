"""What a schema is made of: modules, unions, parameters and messages (paper 001, §3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from relquery.markup.read.reader import Place
from relquery.prompt import Role


@dataclass(frozen=True, slots=True)
class Text:
    """Text that stands in no module of its own. It belongs to the module around it."""

    content: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A place in a module that an argument may take.

    length: tokens that an argument may have. scaffold: text that stands there while the module is
    encoded; empty for the tokenizer's unknown token, `length` times.
    """

    name: str
    length: int
    scaffold: str
    place: Place


@dataclass(frozen=True, slots=True)
class Module:
    """Text that is encoded by itself and can be imported.

    is_cached: False if its states are computed anew for every prompt. priority: the higher, the
    longer its states are kept.
    """

    name: str
    parts: tuple[Part, ...]
    is_cached: bool
    priority: int
    place: Place


@dataclass(frozen=True, slots=True)
class Union:
    """Modules of which a prompt imports one at most. They begin at the same position.

    scaffold: name of the module that stands there while what is around the union is encoded; empty
    for none.
    """

    modules: tuple[Module, ...]
    scaffold: str
    place: Place


@dataclass(frozen=True, slots=True)
class Message:
    """What the system, the user or the assistant says. The model's chat template marks it."""

    role: Role
    parts: tuple[Part, ...]
    place: Place


Part: TypeAlias = "Text | Parameter | Module | Union | Message"


def named(parts: tuple[Part, ...]) -> Iterator[Module | Parameter]:
    """What can be imported or given where these parts are: not what is inside a module."""
    for part in parts:
        match part:
            case Module() | Parameter():
                yield part
            case Union(modules):
                yield from modules
            case Message(_, inner):
                yield from named(inner)


def messages(parts: Sequence[Part]) -> list[Message]:
    """The messages of a schema. What stands outside them is what the user says."""
    found: list[Message] = []
    loose: list[Part] = []
    for part in (*parts, None):
        if part is not None and not isinstance(part, Message):
            loose.append(part)
            continue
        if loose:
            found.append(Message(Role.USER, tuple(loose), _NOWHERE))
            loose = []
        if part is not None:
            found.append(part)
    return found


_NOWHERE = Place(0, 0)
