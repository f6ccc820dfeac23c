"""Gives a database the functions of this folder."""

from __future__ import annotations

from relquery.retrieval.embedder import Embedder
from relquery.retrieval.ngrams import Trigrams
from relquery.retrieval.pairs import Vectors
from relquery.retrieval.shelf import Shelf
from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.retrieval.corpora import Corpora
from relquery.sql.retrieval.named import OF_TABLES
from relquery.sql.retrieval.tables import HITS_IN_SQL, OfTables
from relquery.sql.retrieval.texts import GROUPS_IN_SQL, PAIRS_IN_SQL, OfTexts


def install(database: Database, shelf: Shelf, embedder: Embedder | None) -> Corpora:
    """Give a database the functions, unless it has macros of their names, which then stand.

    embedder: None for search by words, and similarity by trigrams.
    """
    vectors = Vectors(embedder or Trigrams())
    corpora = Corpora(database, shelf, vectors)
    of_tables, of_texts = OfTables(corpora), OfTexts(vectors)
    functions = {
        ours.PASSAGES: (of_tables.passages, "VARCHAR[]"),
        ours.SEARCH: (of_tables.search, HITS_IN_SQL),
        ours.DEDUP: (of_tables.dedup, "VARCHAR"),
        ours.SIMILARITY: (of_texts.similarity, "DOUBLE"),
        ours.EMBED: (of_texts.embed, "FLOAT[]"),
        ours.NEAREST: (of_texts.nearest, PAIRS_IN_SQL),
        ours.DUPLICATES: (of_texts.duplicates, GROUPS_IN_SQL),
    }
    own = functions.keys() & database.macros()

    def install_all() -> None:
        for name, (function, kind) in functions.items():
            if name not in own:
                # DuckDB may compute pure functions when it prepares a statement, and keep the value
                # though the table changes. Within a statement, the value is always the same.
                database.install_function(name, function, kind, is_pure=name not in OF_TABLES)
        database.execute(f"CREATE OR REPLACE TEMP MACRO {ours.OWNER}() AS '{corpora.owner}'")

    install_all()
    corpora.install = install_all
    corpora.functions += [name for name in OF_TABLES if name not in own]
    database.preparations.append(corpora)
    return corpora
