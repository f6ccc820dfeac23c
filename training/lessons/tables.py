"""The bundled tables: seeded joins of a parent (movie, device, product) with its children.

Every key text is on the held-out side, so the demo model has seen none of these rows.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from training.domains.rows import Domain, Parent, Row, Value
from training.domains.split import Split
from training.lessons.generator import DOMAINS

SEED = 20
PARENTS = 60
CHILDREN = (10, 40)  # least and most rows of one parent


def rows(domain: Domain, seed: int = SEED) -> list[Row]:
    """The rows of one table, in random order."""
    rng = Random(f"{seed}:{domain.name}")
    joined = [
        domain.child(rng, Split.HELD_OUT, parent)
        for parent in _parents(rng, domain)
        for _ in range(rng.randint(*CHILDREN))
    ]
    rng.shuffle(joined)
    return joined


def _parents(rng: Random, domain: Domain) -> list[Parent]:
    """Parents with different names; the name is a parent's first field."""
    named: dict[Value, Parent] = {}
    while len(named) < PARENTS:
        parent = domain.parent(rng, Split.HELD_OUT)
        named.setdefault(next(iter(parent.fields.values())), parent)
    return list(named.values())


def write(folder: Path, seed: int = SEED) -> list[Path]:
    """Write every table as Parquet into `folder`; returns the paths."""
    import pyarrow as pa  # heavy, and only needed for writing
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for domain in DOMAINS:
        table = pa.Table.from_pylist([row.fields for row in rows(domain, seed)])
        paths.append(folder / f"{domain.name}.parquet")
        pq.write_table(table, paths[-1], compression="zstd")
    return paths
