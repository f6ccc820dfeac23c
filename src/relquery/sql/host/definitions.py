"""What a connection keeps for itself because DuckDB cannot: texts with LLM calls, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["VIEW", "MACRO", "TABLE MACRO"]
Key = tuple[Kind, str]
"""The kind of a definition and its lower-case name."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A view or macro with LLM calls.

    names: a view's columns, if it names them; a macro's parameters. defaults: the SQL of default
    values by lower-case parameter. body: the SQL of the query or the expression. columns: those
    that a view had when it was created.
    """

    kind: Kind
    name: str
    names: tuple[str, ...]
    defaults: Mapping[str, str]
    body: str
    columns: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """Its key among all definitions."""
        return self.kind, self.name.lower()


@dataclass(slots=True)
class KeptDefinitions:
    """Texts with LLM calls. prepared: statements by lower-case name. definitions: views and macros.
    prepares: whether a statement without calls is to be kept when it is prepared. DuckDB might
    compute the values of Python functions then, and keep them though tables change.
    """

    prepared: dict[str, str] = field(default_factory=dict)
    definitions: dict[Key, Definition] = field(default_factory=dict)
    prepares: Callable[[str], bool] = lambda _: False
    _before: dict[Key, Definition] | None = None

    def copy(self) -> KeptDefinitions:
        """A copy to try changes on."""
        return KeptDefinitions(
            dict(self.prepared), dict(self.definitions), self.prepares, self._before
        )

    def define(self, definition: Definition) -> None:
        """Keep a view or macro; it replaces one of its name."""
        self.definitions[definition.key] = definition

    def forget(self, keys: Iterable[Key]) -> None:
        """Keep definitions no longer."""
        for key in keys:
            self.definitions.pop(key, None)

    def begin(self) -> None:
        """A transaction begins; `rollback` goes back to this point."""
        self._before = dict(self.definitions)

    def commit(self) -> None:
        """The transaction ends, and its changes stay."""
        self._before = None

    def rollback(self) -> None:
        """The transaction ends, and its changes are undone."""
        if self._before is not None:
            self.definitions, self._before = self._before, None
