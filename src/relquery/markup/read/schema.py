"""Schemas: prompt modules, and the text around them (paper 001, §3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relquery.errors import MarkupError, type_of
from relquery.markup.read.define import define
from relquery.markup.read.files import read_text
from relquery.markup.read.parts import Message, Module, Part, Union


@dataclass(frozen=True, slots=True)
class Schema:
    """Modules, and the text around them, which every prompt has.

    source: as it was written, for messages.
    """

    name: str
    parts: tuple[Part, ...]
    source: str

    @classmethod
    def parse(cls, text: str, folder: str | Path | None = None) -> Schema:
        """A schema from its text. folder: where `src=` finds files. Raises MarkupError."""
        if not isinstance(text, str):
            raise MarkupError(f"The schema's text is {type_of(text)}; it must be a string.")
        name, parts = define(text, None if folder is None else Path(folder))
        return cls(name, parts, text)

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """A schema from a file, in whose folder `src=` finds others.

        Raises MarkupError if the file cannot be read or is not a schema.
        """
        if not isinstance(path, (str, Path)):
            raise MarkupError(f"The schema's file is {type_of(path)}; it must be a path.")
        file = Path(path)
        return cls.parse(read_text(file), file.parent)

    def modules(self) -> Iterator[tuple[tuple[str, ...], Module]]:
        """All modules in document order, with the names of the modules around each and its own."""
        yield from _modules(self.parts, ())


def _modules(
    parts: tuple[Part, ...], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Module]]:
    for part in parts:
        match part:
            case Module(name, inner):
                yield (*path, name), part
                yield from _modules(inner, (*path, name))
            case Union(modules):
                yield from _modules(modules, path)
            case Message(_, inner):
                yield from _modules(inner, path)
