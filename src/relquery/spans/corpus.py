"""Named text collections that a query retrieves from, with word search (BM25)."""

from __future__ import annotations

import re
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence

from relquery.errors import ConfigError, QueryError, did_you_mean, type_of
from relquery.ir.rules import Lookup
from relquery.unicode import valid

Search = Callable[[str, int], Sequence[str]]
Corpora = Mapping[str, "Iterable[str] | Search | FullTextCorpus"]

_WORD = re.compile(r"\w+")
_MOST_WORDS = 200  # per question; the rarest words matter most, and SQLite limits expression size


class FullTextCorpus:
    """Texts in memory, indexed by SQLite's FTS5. `search` returns the best matches."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Index texts. Raises QueryError for anything that is not a list of texts."""
        if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
            raise QueryError(f"A corpus is {type_of(texts)}; give it a list of texts.")
        self.texts = list(texts)
        for text in self.texts:
            if not isinstance(text, str):
                raise QueryError(
                    f"A corpus contains {type_of(text)}; it must contain only text. "
                    "Convert the value to text first."
                )
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._index.close)
        self._index.execute("CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='porter')")
        rows = ((i, _encodable(text)) for i, text in enumerate(self.texts))
        self._index.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", rows)

    def search(self, query: str, limit: int) -> list[str]:
        """Up to `limit` texts that share words with the query, best first."""
        words = list(dict.fromkeys(_WORD.findall(_encodable(query).lower())))[:_MOST_WORDS]
        if not words:
            return []
        # In quotes, FTS5 treats keywords as plain words.
        any_of = " OR ".join(f'"{word}"' for word in words)
        rows = self._index.execute(
            "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank, rowid LIMIT ?",
            (any_of, min(limit, len(self.texts))),
        )
        return [self.texts[row] for (row,) in rows]


def passages(text: str) -> list[str]:
    """A document as a corpus: its paragraphs, separated by blank lines."""
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def lookup(corpora: Corpora) -> Lookup:
    """The lookup function for `optimize` and `Work`. Indexes a list of texts on first use.

    The function raises QueryError for an unknown name.
    """
    if not isinstance(corpora, Mapping):
        raise ConfigError(f"corpora is {corpora!r}; it must be a dict, from names to texts.")
    searches: dict[str, Search] = {}

    def find(name: str, query: str, limit: int) -> Sequence[str]:
        if name not in corpora:
            known = ", ".join(corpora) or "none"
            raise QueryError(
                f"The query retrieves from corpus {name!r}, which was not given. Corpora: {known}. "
                f"Pass corpora={{{name!r}: [texts]}}, or --corpus {name}=FILE."
                + did_you_mean(name, corpora)
            )
        if name not in searches:
            given = corpora[name]
            if isinstance(given, FullTextCorpus):
                searches[name] = given.search
            else:
                searches[name] = given if callable(given) else FullTextCorpus(given).search
        try:
            texts = searches[name](query, limit)
        except Exception as error:  # anything that a user's function raises
            raise QueryError(
                f"The search of corpus {name!r} failed: {type(error).__name__}: {error}"
            ) from error
        return _checked(texts, name, limit)

    return find


look_up_nothing = lookup({})


def _checked(texts: object, name: str, limit: int) -> Sequence[str]:
    got = type_of(texts)
    if isinstance(texts, Sequence) and not isinstance(texts, str):
        other = next((text for text in texts if not isinstance(text, str)), None)
        if all(isinstance(text, str) for text in texts):
            return texts[:limit]
        got = f"a list with {type_of(other)}"
    raise QueryError(f"The search of corpus {name!r} returned {got}; expected a list of texts.")


def _encodable(text: str) -> str:
    """Replace what SQLite cannot store: lone surrogates, and NULs, which would end the text."""
    return valid(text).replace("\0", " ")
