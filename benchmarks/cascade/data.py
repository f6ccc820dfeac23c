"""What cascades are tried on: scores of many shapes with answers, and real tables with labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from benchmarks.harness import Say
from relquery.arrays import Bools, Floats, Int64s
from relquery.backends.embedders import load_embedder

ENCODER = Path(__file__).parents[2] / ".real-models/minilm"
Generator = np.random.Generator


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Rows with the oracle's answers, and what a proxy says of them."""

    name: str
    about: str
    """What is special about it."""
    yes: Bools
    """The oracle's answers."""
    scores: Floats
    """The proxy's scores; empty where a head is trained on vectors."""
    vectors: npt.NDArray[np.float32] | None = None
    """Embeddings of the rows."""
    weights: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """How many rows each call stands for; empty for one."""

    @property
    def rows(self) -> Int64s:
        """The rows of each call."""
        return self.weights if len(self.weights) else np.ones(len(self.yes), np.int64)


def shapes(seed: int, share: float = 1.0) -> Iterator[Case]:
    """Made-up cases. share: of their sizes."""
    for index, (name, about, calls, make) in enumerate(_SHAPES):
        rng = np.random.default_rng((seed, index))
        size = calls if calls <= SMALL else max(SMALL, int(calls * share))
        scores, yes = make(rng, size)
        weights = np.empty(0, np.int64)
        if name == "duplicates":
            weights = rng.zipf(1.7, size).clip(1, 200).astype(np.int64)
        yield Case(name, about, yes, scores, weights=weights)


SMALL = 200
"""Rows of the smallest case."""


def _drawn(rng: Generator, scores: Floats) -> tuple[Floats, Bools]:
    return scores, rng.random(len(scores)) < scores


def _against(rng: Generator, calls: int) -> tuple[Floats, Bools]:
    scores, yes = _drawn(rng, rng.beta(0.5, 0.5, calls))
    return 1 - scores, yes


def _noise(rng: Generator, calls: int) -> tuple[Floats, Bools]:
    return rng.random(calls), rng.random(calls) < 0.3


def _ties(rng: Generator, calls: int) -> tuple[Floats, Bools]:
    return np.full(calls, 0.9), rng.random(calls) < 0.93


def _two_points(rng: Generator, calls: int) -> tuple[Floats, Bools]:
    high = rng.random(calls) < 0.5
    return np.where(high, 0.9, 0.1), rng.random(calls) < np.where(high, 0.95, 0.04)


def _cliff(rng: Generator, calls: int) -> tuple[Floats, Bools]:
    """The sure half right, the rest wrong: errors stand together, where a bound is tightest."""
    scores = np.linspace(0.001, 0.999, calls)
    middle = np.abs(scores - 0.5) < 0.15
    return scores, np.where(middle, scores < 0.5, scores > 0.5)


def _overconfident(rng: Generator, calls: int) -> tuple[Floats, Bools]:
    logits = rng.normal(0, 2, calls)
    return 1 / (1 + np.exp(-3 * logits)), rng.random(calls) < 1 / (1 + np.exp(-logits))


def _rare(rng: Generator, calls: int) -> tuple[Floats, Bools]:
    yes = rng.random(calls) < 0.01
    return 1 / (1 + np.exp(-rng.normal(np.where(yes, 2.0, -2.0), 1.0))), yes


def _sure(rng: Generator, calls: int) -> tuple[Floats, Bools]:
    return _drawn(rng, rng.beta(0.1, 0.1, calls))


def _calibrated(rng: Generator, calls: int) -> tuple[Floats, Bools]:
    return _drawn(rng, rng.beta(0.5, 0.5, calls))


def _skewed(rng: Generator, calls: int) -> tuple[Floats, Bools]:
    return _drawn(rng, rng.beta(0.3, 1.2, calls))


_SHAPES: tuple[tuple[str, str, int, Callable[[Generator, int], tuple[Floats, Bools]]], ...] = (
    ("calibrated", "scores are probabilities, Beta(0.5, 0.5)", 1_000, _calibrated),
    ("sure", "probabilities near 0 and 1, Beta(0.1, 0.1)", 1_000, _sure),
    ("skewed", "probabilities, a fifth of the rows positive", 2_000, _skewed),
    ("overconfident", "logits three times too large", 1_000, _overconfident),
    ("against", "the higher the score, the less likely yes", 1_000, _against),
    ("noise", "scores say nothing", 1_000, _noise),
    ("ties", "one score for all rows", 1_000, _ties),
    ("two points", "two scores", 1_000, _two_points),
    ("cliff", "errors stand together at the border", 1_000, _cliff),
    ("rare", "1% positive", 2_000, _rare),
    ("small", "200 rows, calibrated", SMALL, _calibrated),
    ("duplicates", "calls stand for 1 to 200 rows", 1_000, _calibrated),
)
_TABLES = (
    ("Movies", "movies/movies.parquet", "reviewcontent", "reviewtype", "Fresh"),
    ("Stretto", "stretto/reviews_1000.csv", "reviewtext", "scoresentiment", "POSITIVE"),
    ("SemBench", "sembench/Reviews.csv", "reviewText", "scoreSentiment", "POSITIVE"),
)


def tables(folder: Path, seed: int, most: int, say: Say) -> Iterator[Case]:
    """Real tables whose gold labels are the oracle's answers. most: rows of each.

    The proxy's score is the gold label's logit with normal noise: right in about 90%.
    """
    for name, file, _, gold, positive in _TABLES:
        if (table := _read(folder / file, most, say)) is None:
            continue
        yes = np.array([value == positive for value in table.column(gold).to_pylist()])
        rng = np.random.default_rng(seed)
        scores = 1 / (1 + np.exp(-2 * rng.normal(np.where(yes, 1.3, -1.3), 1.0)))
        yield Case(name, f"{len(yes):,} rows, a seeded noisy score", yes, scores)


def headed(folder: Path, most: int, say: Say) -> Iterator[Case]:
    """A table with the embeddings of an encoder, on which a head is trained."""
    name, file, text, gold, positive = _TABLES[1]
    if not ENCODER.exists():
        say(f"{ENCODER} is absent: scripts/real-models minilm")
        return
    if (table := _read(folder / file, most, say)) is None:
        return
    encoder = load_embedder(str(ENCODER))
    assert encoder is not None
    yes = np.array([value == positive for value in table.column(gold).to_pylist()])
    vectors = encoder.embed([str(value) for value in table.column(text).to_pylist()])
    about = f"{len(yes):,} rows, MiniLM's embeddings"
    yield Case(name, about, yes, np.empty(0), vectors=vectors)


def _read(path: Path, most: int, say: Say) -> pa.Table | None:
    if not path.exists():
        say(f"{path} is absent")
        return None
    if path.suffix == ".parquet":
        return pq.read_table(path).slice(0, most)
    options = pa_csv.ParseOptions(newlines_in_values=True)
    return pa_csv.read_csv(path, parse_options=options).slice(0, most)
