"""The tables of a connection as the corpora of span queries, by name."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa

from relquery.sql.retrieval.corpora import Corpora
from relquery.sql.retrieval.named import Named
from relquery.sql.retrieval.paths import find_table

Search = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class NamedTables(Mapping[str, Search]):
    """What finds texts of a table: of "docs" its only column of text, of "docs.text" that one.

    Each table is read once, so a new one is needed once tables may have changed.
    """

    corpora: Corpora
    _known: dict[str, Search] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Search:
        if name not in self._known:
            named = self._named(name)
            if named is None:
                raise KeyError(name)
            self.corpora.read(named)
            self._known[name] = lambda question, limit: self._find(named, question, limit)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._named(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.corpora.database.tables())

    def __len__(self) -> int:
        return len(self.corpora.database.tables())

    def _named(self, name: str) -> Named | None:
        database = self.corpora.database
        if find_table(name, database) is not None:
            return Named(name, "").lower()
        table, _, column = name.rpartition(".")
        is_table = table and find_table(table, database) is not None
        return Named(table, column.strip('"')).lower() if is_table else None

    def _find(self, named: Named, question: str, limit: int) -> list[str]:
        (found,) = self.corpora.search(named, [question], limit)
        texts: list[str] = (
            self.corpora.searched(named).texts.take(pa.array(found.texts)).to_pylist()
        )
        return texts


def with_tables(given: Any, corpora: Corpora) -> Any:
    """The corpora that a user gives, and the tables under all other names."""
    tables = NamedTables(corpora)
    if isinstance(given, Mapping):
        return ChainMap(dict(given), cast(MutableMapping[str, Any], tables))
    return tables if given is None else given
