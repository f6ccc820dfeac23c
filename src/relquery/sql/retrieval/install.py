"""Gives a database the functions of this folder."""

from __future__ import annotations

from relquery.retrieval.shelf import Shelf
from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.retrieval.corpora import Corpora
from relquery.sql.retrieval.tables import HITS_IN_SQL, OfTables
from relquery.sql.retrieval.texts import GROUPS_IN_SQL, PAIRS_IN_SQL, OfTexts

_FIELDS = "unnest(value, recursive := true)"


def install(database: Database, shelf: Shelf) -> Corpora:
    """Give a database the functions, unless it has macros of their names, which then stand."""
    corpora = Corpora(database, shelf)
    of_tables, of_texts = OfTables(corpora), OfTexts(shelf.vectors)
    functions = {
        ours.PASSAGES: (of_tables.passages, "VARCHAR[]", "unnest(value) AS passage"),
        ours.SEARCH: (of_tables.search, HITS_IN_SQL, _FIELDS),
        ours.DEDUP: (of_tables.dedup, "VARCHAR", ""),
        ours.SIMILARITY: (of_texts.similarity, "DOUBLE", ""),
        ours.EMBED: (of_texts.embed, "FLOAT[]", ""),
        ours.NEAREST: (of_texts.nearest, PAIRS_IN_SQL, _FIELDS),
        ours.DUPLICATES: (of_texts.duplicates, GROUPS_IN_SQL, _FIELDS),
    }
    own = database.macros()
    for name, function in functions.items():
        if name not in own:
            database.install_function(name, *function)
    database.preparations.append(corpora)
    database.kept.prepares = corpora.is_needed
    return corpora
