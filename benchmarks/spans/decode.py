"""Tokens per second after a prompt of spans, compared with the same prompt as ordinary text."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Figure
from benchmarks.spans.sizes import Sizes
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig
from relquery.engine.loop import Loop
from relquery.engine.requests.pieces import Chain
from relquery.engine.requests.request import Request

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

QUESTION_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Decoded:
    """Tokens per second after a prompt of `spans` spans of `tokens` tokens each."""

    spans: int
    tokens: int
    plain: float
    ours: float


def measure(model: ServedModel, sizes: Sizes, seed: int) -> Decoded:
    """Decode on both sides in turn; the prompts are computed in advance."""
    rng = np.random.default_rng(seed)
    count, length = sizes.documents[-1], sizes.document_tokens
    vocabulary = len(model.tokenizer)
    documents = rng.integers(1, vocabulary, (count, length)).astype(np.int32)
    question = rng.integers(1, vocabulary, QUESTION_TOKENS).astype(np.int32)
    spans = tuple(Chain((document,)) for document in documents)
    bound = (sizes.repeats + 2) * sizes.steps
    cache_tokens = max(sizes.cache_tokens, documents.size + bound + 2 * QUESTION_TOKENS)
    config = EngineConfig(cache_tokens=cache_tokens)
    plain = _ready(model, config, Chain((*documents, question)), bound)
    ours = _ready(model, config, Chain((*spans, question)), bound)
    rounds = [
        (_seconds(plain, sizes.steps), _seconds(ours, sizes.steps))
        for _ in range(sizes.repeats + 1)  # the first warms up
    ][1:]
    speeds = (sizes.steps / median(seconds) for seconds in zip(*rounds, strict=True))
    return Decoded(count, length, *speeds)


def _ready(model: ServedModel, config: EngineConfig, prompt: Chain, bound: int) -> Loop:
    """An engine with this one request, about to decode its second token."""
    engine = EmbeddedBackend(model, config).engine
    request = Request(0, prompt, max_tokens=bound)
    engine.submit(request)
    while not request.decoding:
        engine.step()
    return engine


def _seconds(engine: Loop, steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        engine.step()
    return time.perf_counter() - start


def figure(row: Decoded) -> Figure:
    """Ours over plain."""
    note = f"{row.ours:.1f} / {row.plain:.1f} tokens/s after {row.spans} x {row.tokens} tokens"
    return Figure("decode_with_16_spans", row.ours / row.plain, 0.9, note=note)
