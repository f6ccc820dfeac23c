"""A corpus is searched by one process, which makes its index, and then by another, which finds it.

Neither has another's memory, so what the second finds is in the folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.queries.million import GIB, AtOnce, peak_bytes
from benchmarks.retrieval.index.corpus import passages, questions, recall
from relquery.connection import connect

K = 5
ONE = "SELECT passages('docs', 'word7 word77 word777', {k}) AS found"
ALL = "SELECT question, passages('docs', question, {k}) AS found FROM questions"


@dataclass(frozen=True, slots=True)
class Searched:
    """What a process did. first: seconds of the first query, with reading the table and what is
    needed of an index. all: seconds of the statement with all questions. made: how many indexes
    were made. peak_gib: memory of the process at its peak."""

    first: float
    all: float
    made: int
    peak_gib: float


@dataclass(frozen=True, slots=True)
class Indexed:
    """making, finding: the two processes. recall: of the second at K, against scikit-learn's.
    file_bytes: of the index on disk."""

    making: Searched
    finding: Searched
    recall: float
    file_bytes: int


def measure(count: int, words: int, asked: int, seed: int) -> Indexed:
    """Over made-up passages. torch takes no part."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = passages(count, words, seed)
        pq.write_table(corpus, folder / "docs.parquet")
        pq.write_table(questions(corpus, asked, seed), folder / "questions.parquet")
        making, finding = _in_a_process(folder), _in_a_process(folder)
        found = pq.read_table(folder / "found.parquet").to_pydict()
        right = recall(corpus["text"].to_pylist(), found["question"], found["found"])
        kept = sum(file.stat().st_size for file in (folder / "index").iterdir())
    return Indexed(making, finding, right, kept)


def _in_a_process(folder: Path) -> Searched:
    command = [sys.executable, "-m", __spec__.name, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Searched(**json.loads(done.stdout.splitlines()[-1]))


def search(folder: Path) -> Searched:
    """In this process. What it finds is written to the folder."""
    with connect(AtOnce(), ledger=None, index=folder / "index") as connection:
        for name in ("docs", "questions"):
            connection.sql(f"CREATE VIEW {name} AS SELECT * FROM '{folder / name}.parquet'")
        begin = time.perf_counter()
        connection.sql(ONE.format(k=K)).fetchall()
        between = time.perf_counter()
        found = connection.sql(ALL.format(k=K)).arrow()
        end = time.perf_counter()
        pq.write_table(found, folder / "found.parquet")
        made = connection.searched.shelf.made
    return Searched(between - begin, end - between, made, peak_bytes() / GIB)


if __name__ == "__main__":
    print(json.dumps(asdict(search(Path(sys.argv[1])))))
