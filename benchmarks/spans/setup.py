"""Shared by the parts of `scripts/bench spans`: the model, random documents, both sides."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.spans.sizes import VOCABULARY
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig
from relquery.connection import Connection, connect
from relquery.ir.nodes import Node
from relquery.spans.work import SpanResult
from training.lessons.needles import HAY

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

PASSAGES = {
    "bulk_2wiki": "longctx/2wikimultihopqa_top5.jsonl",
    "bulk_nq": "longctx/nq_top5.jsonl",
}


def read_passages(path: Path, queries: int) -> list[list[str]]:
    """The passages of each of the first queries, one or more lines each; [] without the file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line)["docs"] for line, _ in zip(lines, range(queries), strict=False)]
    return [[f"{passage}\n" for passage in row] for row in rows]


def load_model(model: str, queries: int, data: Path) -> ServedModel:
    """Random weights, and a tokenizer trained on the passages, or on some words without them."""
    from relquery.model.load import load
    from relquery.model.networks.random import train_tokenizer

    rows = [row for file in PASSAGES.values() for row in read_passages(data / file, queries)]
    texts = list(dict.fromkeys(passage for row in rows for passage in row))
    return load(model, tokenizer=train_tokenizer(texts or [" ".join(HAY)] * 2, VOCABULARY))


class Writer:
    """Writes random texts whose number of tokens is known."""

    def __init__(self, model: ServedModel, seed: int) -> None:
        self._model, self._rng = model, np.random.default_rng(seed)

    def document(self, tokens: int) -> str:
        """A line of random words with `tokens` tokens (at least 2) at any position."""
        words = self._rng.choice(self._words, tokens - 1)
        return " ".join(words) + "\n"

    def documents(self, count: int, tokens: int) -> list[str]:
        """Several."""
        return [self.document(tokens) for _ in range(count)]

    def shuffled(self, texts: list[str]) -> list[str]:
        """The texts in another order, if there is one."""
        if len(texts) < 2:
            return texts
        while True:
            order = self._rng.permutation(len(texts)).tolist()
            if order != sorted(order):
                return [texts[i] for i in order]

    def question(self) -> str:
        """A question different from all earlier ones."""
        return f"Question {self._rng.integers(10**9)}: which of these documents answers it?"

    @cached_property
    def _words(self) -> list[str]:
        """Words that are one token at the start of a line and one after a space."""
        words = sorted(w for w in self._model.tokenizer.vocabulary if w.isascii() and w.isalpha())
        first, later = (
            self._model.tokenizer.encode(texts) for texts in (words, [f" {word}" for word in words])
        )
        return [
            word
            for word, *ids in zip(words, first, later, strict=True)
            if all(len(each) == 1 for each in ids)
        ]


@contextmanager
def sides(
    model: ServedModel, config: EngineConfig, count: int = 2
) -> Iterator[tuple[Connection, ...]]:
    """Connections with identical but separate engines, which do not share their caches."""
    backends = [EmbeddedBackend(model, config) for _ in range(count)]
    for backend in backends:
        backend.reserve()
    opened = [connect(backend, form="json", ledger=None) for backend in backends]
    try:
        yield tuple(opened)
    finally:
        for connection in opened:
            connection.close()
            connection.backend.close()


def timed(connection: Connection, query: Node) -> tuple[float, SpanResult]:
    """Seconds from the call to its answer."""
    start = time.perf_counter()
    result = connection.run(query)
    return time.perf_counter() - start, result
