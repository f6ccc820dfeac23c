"""Made-up passages and questions, and an exact search of them by scikit-learn alone."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.queries.million import GIB, AtOnce, peak_bytes
from benchmarks.retrieval.sizes import FULL, Sizes, choose
from benchmarks.templates import template
from relquery.arrays import Floats, Int64s
from relquery.connection import connect

_WORDS, _OF_QUESTION, _AT_ONCE = 50_000, 8, 32


def passages(count: int, words: int, seed: int = 0) -> pa.Table:
    """One column, `text`: so many words each, whose frequencies follow Zipf's law."""
    drawn = _drawn(np.random.default_rng(seed), (count, words))
    return pa.table({"text": _texts(drawn)})


def questions(corpus: pa.Table, count: int, seed: int = 0) -> pa.Table:
    """One column, `question`: words of a passage each, in any order, and half as many others."""
    rng = np.random.default_rng([seed, 1])
    others = _texts(_drawn(rng, (count, _OF_QUESTION // 2)))
    asked = []
    for row, more in zip(rng.integers(0, len(corpus), count).tolist(), others, strict=True):
        own = rng.permutation(corpus["text"][row].as_py().split())[:_OF_QUESTION]
        asked.append(" ".join([*own, more]))
    return pa.table({"question": asked})


def _drawn(rng: np.random.Generator, shape: tuple[int, int]) -> Int64s:
    cumulative = np.cumsum(1 / np.arange(1, _WORDS + 1))
    words: Int64s = np.searchsorted(cumulative, rng.random(shape) * cumulative[-1])
    return words


def _texts(drawn: Int64s) -> list[str]:
    known = np.array([f"word{number}" for number in range(_WORDS)], dtype=object)
    return [" ".join(known[row]) for row in drawn]


def recall(corpus: Sequence[str], asked: Sequence[str], found: Sequence[Sequence[str]]) -> float:
    """The share of the best ranks that what was found has by scikit-learn's own scores.

    found: texts for each question, best first. At each rank, the score of the text found is
    compared with the best at this rank, so that of equal texts either is right.
    """
    right = total = 0
    place = {text: index for index, text in enumerate(corpus)}
    scored = _scores(corpus, asked)
    for scores, texts in zip(scored, found, strict=True):
        best = -np.sort(-scores)[: len(texts)]
        ours = scores[[place[text] for text in texts]]
        right += int(np.isclose(ours, best, rtol=0, atol=1e-6).sum())
        total += len(texts)
    return right / total


def _scores(corpus: Sequence[str], asked: Sequence[str]) -> Iterator[Floats]:
    """Of all texts, for each question: products of the vectors of a TfidfVectorizer."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer()
    weights = vectorizer.fit_transform(corpus).T.tocsr()
    for start in range(0, len(asked), _AT_ONCE):
        vectors = vectorizer.transform(asked[start : start + _AT_ONCE])
        yield from (vectors @ weights).toarray()


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
        hits = pq.read_table(folder / "found.parquet").to_pydict()
        right = recall(corpus["text"].to_pylist(), hits["question"], hits["found"])
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
        table = connection.sql(ALL.format(k=K)).arrow()
        end = time.perf_counter()
        pq.write_table(table, folder / "found.parquet")
        made = connection.searched.shelf.made
    return Searched(between - begin, end - between, made, peak_bytes() / GIB)


if __name__ == "__main__":
    print(json.dumps(asdict(search(Path(sys.argv[1])))))


WORDS = template("retrieval")

MAKING_GOAL, ASKING_GOAL = 120.0, 5.0
"""Seconds, for 100,000 passages and 1,000 questions."""
MIB = 2**20


@dataclass(slots=True)
class Index(Part):
    """The part."""

    name = "index"
    title = "An index over many passages"
    sizes: Sizes = FULL
    found: list[Indexed] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.sizes = sizes = choose(settings.quick)
        indexed = measure(sizes.passages, sizes.words, sizes.asked, settings.seed)
        self.found.append(indexed)
        say(f"{indexed.making}; again {indexed.finding}")
        yield from figures(indexed)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        for indexed in self.found:
            yield WORDS.block(
                "index",
                passages=self.sizes.passages,
                words=self.sizes.words,
                asked=self.sizes.asked,
                k=K,
                size=indexed.file_bytes / MIB,
            )
            yield from table(
                (
                    "process",
                    "first query, s",
                    "all questions, s",
                    "indexes made",
                    "most memory, GiB",
                ),
                [
                    (
                        name,
                        f"{searched.first:.2f}",
                        f"{searched.all:.2f}",
                        str(searched.made),
                        f"{searched.peak_gib:.2f}",
                    )
                    for name, searched in (("first", indexed.making), ("second", indexed.finding))
                ],
            )


def figures(at: Indexed) -> Iterator[Figure]:
    """Seconds of the first and of all questions, what the second process makes, and recall."""
    note = "until the first query has its passages"
    yield Figure("index_seconds", at.making.first, MAKING_GOAL, at_least=False, note=note)
    note = f"all questions in one statement; {at.finding.all:.2f} s in the second process"
    yield Figure("index_all_seconds", at.making.all, ASKING_GOAL, at_least=False, note=note)
    note = f"its first query takes {at.finding.first:.2f} s, in place of {at.making.first:.2f}"
    made = float(at.finding.made)
    yield Figure("index_made_again", made, 0.0, at_least=False, note=note, any_size=True)
    note = f"share of the {K} best ranks that have the score of scikit-learn's exact search"
    yield Figure("index_recall", at.recall, 1.0, note=note, any_size=True)
