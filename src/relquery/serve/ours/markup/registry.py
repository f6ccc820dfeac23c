"""Schemas that prompts may name: those of all, and each tenant's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from relquery.backends.base import Backend
from relquery.errors import ConfigError
from relquery.markup.read.schema import Schema
from relquery.markup.schemas import Schemas
from relquery.serve.errors import HttpError

MOST_SCHEMAS = 100
"""That a tenant may have posted."""
MOST_CHARACTERS = 4_000_000
"""Of all of them together."""


@dataclass(slots=True)
class Owned:
    """What a tenant can name. schemas: laid out for it, one at a time. own: what it has posted.

    turn: held while `schemas` is used.
    """

    schemas: Schemas
    own: dict[str, Schema] = field(default_factory=dict)
    turn: Lock = field(default_factory=Lock)


class Registry:
    """The schemas of a server, by tenant. Used from any thread."""

    def __init__(self, folder: Path | None) -> None:
        """Read the schemas of a folder, which are everybody's.

        Raises ConfigError for what is not a folder, and MarkupError.
        """
        self._of_all = [] if folder is None else _read(folder)
        self._tenants: dict[str, Owned] = {}
        self._lock = Lock()

    def of(self, tenant: str, backend: Callable[[], Backend]) -> Owned:
        """What a tenant can name."""
        with self._lock:
            if tenant not in self._tenants:
                schemas = Schemas(backend())
                for schema in self._of_all:
                    schemas.add(schema)
                self._tenants[tenant] = Owned(schemas)
            return self._tenants[tenant]

    def is_shared(self, name: str) -> bool:
        """Whether a schema is everybody's."""
        return any(schema.name == name for schema in self._of_all)

    def add(self, owned: Owned, schema: Schema, *, prepare: bool) -> None:
        """Give a tenant a schema, in place of one of the same name.

        Raises HttpError if it has too many, or the name is one of everybody's, and what
        Schemas.add raises.
        """
        if self.is_shared(schema.name):
            raise HttpError(
                409,
                f"The schema '{schema.name}' is everybody's. Give yours another name.",
                "in_use",
            )
        with owned.turn:
            kept = [each for name, each in owned.own.items() if name != schema.name]
            if len(kept) >= MOST_SCHEMAS:
                raise HttpError(
                    400,
                    f"There are {MOST_SCHEMAS} schemas already. Delete one first.",
                    "too_many_schemas",
                )
            size = sum(len(each.source) for each in (*kept, schema))
            if size > MOST_CHARACTERS:
                raise HttpError(
                    400,
                    f"Your schemas would have {size:,} characters together; at most "
                    f"{MOST_CHARACTERS:,} may be.",
                    "too_large",
                )
            before = owned.own.get(schema.name)
            try:
                owned.schemas.add(schema, prepare=prepare)
                owned.schemas.layout(schema.name)
            except BaseException:
                owned.schemas.remove(schema.name)
                if before is not None:
                    owned.schemas.add(before)
                raise
            owned.own[schema.name] = schema

    def remove(self, owned: Owned, name: str) -> None:
        """Forget a tenant's schema. Raises HttpError for one that it has not posted."""
        if self.is_shared(name):
            raise HttpError(403, f"The schema '{name}' is everybody's.", "not_allowed")
        with owned.turn:
            if name not in owned.own:
                raise not_there(name, owned)
            del owned.own[name]
            owned.schemas.remove(name)


def not_there(name: str, owned: Owned) -> HttpError:
    """There is no schema of this name."""
    known = ", ".join(sorted(owned.schemas.known)) or "none"
    return HttpError(404, f"The schema '{name}' does not exist. Schemas: {known}.", "not_found")


def _read(folder: Path) -> list[Schema]:
    if not folder.is_dir():
        raise ConfigError(f"schemas is {str(folder)!r}, which is not a folder.")
    return [Schema.load(file) for file in sorted(folder.glob("*.xml"))]
