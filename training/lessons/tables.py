"""The bundled tables: seeded joins of a parent (movie, device, product) with its children.

`films` is what `relquery demo` asks about; it says itself whether each film is for kids. Every key
text is on the held-out side, so the demo model has seen none of these rows.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from training.domains.movies import FILMS
from training.domains.rows import Domain, Parent, Row, Value, yes
from training.domains.split import Split
from training.lessons.generator import DOMAINS

SEED = 20
PARENTS = 60
CHILDREN = (10, 40)  # least and most rows of one parent
FILM_PARENTS, FILM_CHILDREN, FILM_ROWS = 20, (45, 65), 1_000


def rows(
    domain: Domain,
    seed: int = SEED,
    parents: int = PARENTS,
    children: tuple[int, int] = CHILDREN,
) -> list[Row]:
    """The rows of one table, in random order."""
    rng = Random(f"{seed}:{domain.name}")
    joined = [
        domain.child(rng, Split.HELD_OUT, parent)
        for parent in _parents(rng, domain, parents)
        for _ in range(rng.randint(*children))
    ]
    rng.shuffle(joined)
    return joined


def _parents(rng: Random, domain: Domain, count: int) -> list[Parent]:
    """Parents with different names; the name is a parent's first field."""
    named: dict[Value, Parent] = {}
    while len(named) < count:
        parent = domain.parent(rng, Split.HELD_OUT)
        named.setdefault(next(iter(parent.fields.values())), parent)
    return list(named.values())


def tables(seed: int = SEED) -> dict[str, list[dict[str, Value]]]:
    """All of them, by name."""
    found = {domain.name: [row.fields for row in rows(domain, seed)] for domain in DOMAINS}
    films = rows(FILMS, seed, FILM_PARENTS, FILM_CHILDREN)[:FILM_ROWS]
    told = [row.fields | {"kids": yes(bool(row.facts["kids"]))} for row in films]
    return found | {FILMS.name: told}


def write(folder: Path, seed: int = SEED) -> list[Path]:
    """Write every table as Parquet into `folder`; returns the paths."""
    import pyarrow as pa  # heavy, and only needed for writing
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, listed in tables(seed).items():
        paths.append(folder / f"{name}.parquet")
        pq.write_table(pa.Table.from_pylist(listed), paths[-1], compression="zstd")
    return paths
