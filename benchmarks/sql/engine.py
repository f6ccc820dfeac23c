"""Prefill and decode on the engine, without SQL."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.sql.sizes import FULL, Sizes, choose
from benchmarks.templates import template
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig
from relquery.engine.loop import Loop
from relquery.engine.requests.request import Request

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from relquery.model.served import ServedModel

WORDS = template("sql")

Speeds = dict[str, float]
"""Tokens per second, by side."""
SHARED, UNSHARED, WITHOUT = "shared", "unshared", "without"
OWN = 40
"""Tokens of a prompt after a shared context."""


@dataclass(slots=True)
class Engine(Part):
    """The part. decoded: by how many requests; shared: by network and number format."""

    name = "engine"
    title = "The engine"
    sizes: Sizes = FULL
    prefilled: Speeds = field(default_factory=dict)
    decoded: dict[int, float] = field(default_factory=dict)
    shared: dict[tuple[str, str], Speeds] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from benchmarks.stock import set_threads, stock_network
        from relquery.model.load import load

        set_threads(settings.threads)
        self.sizes = sizes = choose(settings.quick)
        rng = np.random.default_rng(settings.seed)
        model = load(sizes.model)
        tokens = rng.integers(1, len(model.tokenizer), sizes.prompts)
        self.prefilled = prefill_speeds(model, stock_network(sizes.model), tokens)
        yield prefill_figure(self.prefilled, sizes)
        for batch in (1, sizes.requests):
            prompts = rng.integers(1, len(model.tokenizer), (batch, 128))
            engines = {"alone": decoding(model, prompts, sizes.steps)}
            self.decoded[batch] = speeds(engines, batch, sizes.steps)["alone"]
        yield batch_figure(self.decoded)
        for spec, dtype in ((sizes.model, "float32"), (sizes.wide, "bfloat16")):
            network = model if spec == sizes.model else load(spec, dtype=dtype)
            self.shared[spec, dtype] = measure_shared(network, sizes, rng)
            say(f"{spec}, {dtype}: {self.shared[spec, dtype]}")
        yield from shared_figures(self.shared)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        sizes = self.sizes
        yield WORDS.block("prefill")
        yield from table(
            ("network", "prompts", *(f"{side}, tokens/s" for side in self.prefilled)),
            [
                (
                    f"`{sizes.model}`",
                    "{} x {:,}".format(*sizes.prompts),
                    *(f"{speed:,.0f}" for speed in self.prefilled.values()),
                )
            ],
        )
        yield WORDS.block("decode")
        yield from table(
            ("network", *(f"{batch} requests" for batch in self.decoded)),
            [(f"`{sizes.model}`", *(f"{speed:,.0f}" for speed in self.decoded.values()))],
        )
        yield WORDS.block(
            "shared", requests=sizes.requests, shared=sizes.shared, own=OWN + sizes.steps // 2
        )
        yield from table(
            ("network", "numbers", SHARED, UNSHARED, WITHOUT, "over unshared", "over without"),
            [
                (
                    f"`{spec}`",
                    dtype,
                    *(f"{speeds[side]:,.0f}" for side in (SHARED, UNSHARED, WITHOUT)),
                    *(f"{speeds[SHARED] / speeds[side]:.2f}" for side in (UNSHARED, WITHOUT)),
                )
                for (spec, dtype), speeds in self.shared.items()
            ],
        )


def prefill_speeds(
    model: ServedModel, network: PreTrainedModel, tokens: np.ndarray, repeats: int = 3
) -> Speeds:
    """Prefill speeds of the engine and of `transformers`, the best of several runs in turn.

    network: the model's, without our attention or packed weights.
    """
    from benchmarks.stock import prefill

    ours, stock = [], []
    prefill(network, tokens[:2])
    _prefill_seconds(model, tokens[:2])
    for _ in range(repeats):
        start = time.perf_counter()
        prefill(network, tokens)
        stock.append(time.perf_counter() - start)
        ours.append(_prefill_seconds(model, tokens))
    return {"engine": tokens.size / min(ours), "transformers": tokens.size / min(stock)}


def _prefill_seconds(model: ServedModel, tokens: np.ndarray) -> float:
    engine = EmbeddedBackend(model, EngineConfig(prefix_caching=False)).engine
    start = time.perf_counter()
    for index, prompt in enumerate(tokens.astype(np.int32)):
        engine.submit(Request(index, prompt, max_tokens=1))
    for _ in engine.run():
        pass
    return time.perf_counter() - start


def decoding(model: ServedModel, prompts: np.ndarray, steps: int, share: bool = True) -> Loop:
    """An engine that has computed the prompts, and will decode for more than `steps` steps."""
    config = EngineConfig(cache_tokens=131_072, segment_sharing=share)
    engine = EmbeddedBackend(model, config).engine
    for index, prompt in enumerate(prompts.astype(np.int32)):
        engine.submit(Request(index, prompt, max_tokens=steps + 64))
    while engine.waiting or not all(request.decoding for request in engine.running):
        engine.step()
    for _ in range(2):  # the first step of a batch is planned, the next follows it
        engine.step()
    return engine


def speeds(engines: Mapping[str, Loop], requests: int, steps: int) -> Speeds:
    """Tokens per second of some decode steps; the engines take turns, step by step."""
    seconds = dict.fromkeys(engines, 0.0)
    for _ in range(steps):
        for side, engine in engines.items():
            start = time.perf_counter()
            engine.step()
            seconds[side] += time.perf_counter() - start
    return {side: requests * steps / taken for side, taken in seconds.items()}


def measure_shared(model: ServedModel, sizes: Sizes, rng: np.random.Generator) -> Speeds:
    """Measure decoding after a context that all requests share."""
    vocabulary = len(model.tokenizer)
    own = rng.integers(1, vocabulary, (sizes.requests, OWN))
    context = np.broadcast_to(rng.integers(1, vocabulary, sizes.shared), (len(own), sizes.shared))
    prompts = np.hstack((context, own))
    engines = {
        SHARED: decoding(model, prompts, sizes.steps),
        UNSHARED: decoding(model, prompts, sizes.steps, share=False),
        WITHOUT: decoding(model, own, sizes.steps),
    }
    return speeds(engines, sizes.requests, sizes.steps)


def prefill_figure(at: Speeds, sizes: Sizes) -> Figure:
    """The engine's prefill over that of `transformers`."""
    note = "{:,.0f} / {:,.0f} tokens/s, {} x {:,}".format(*at.values(), *sizes.prompts)
    ratio = at["engine"] / at["transformers"]
    return Figure("prefill_over_transformers", ratio, 0.9, note=note, any_size=True)


def batch_figure(at: dict[int, float]) -> Figure:
    """Many requests over one."""
    (_, alone), (count, many) = at.items()
    note = f"{many:,.0f} / {alone:,.0f} tokens/s after prompts of 128 tokens"
    return Figure(f"decode_{count}_over_1", many / alone, 5.0, note=note, any_size=True)


def shared_figures(shared: Mapping[tuple[str, str], Speeds]) -> Iterator[Figure]:
    """The gain from sharing a context, and how far it is from the most that is possible."""
    goals = {"float32": 1.3, "bfloat16": 3.0}
    for (spec, dtype), speeds in shared.items():
        most = speeds[WITHOUT] / speeds[UNSHARED]  # if reading the context took no time
        note = f"{speeds[SHARED]:,.0f} / {speeds[UNSHARED]:,.0f} tokens/s, {spec} in {dtype}"
        note += f"; {most:.2f} if the context cost nothing"
        ratio = speeds[SHARED] / speeds[UNSHARED]
        name = f"decode_shared_over_unshared_{dtype}"
        yield Figure(name, ratio, goals[dtype], note=note, any_size=True)
    least = min(shared.values(), key=lambda at: at[SHARED] / at[WITHOUT])
    note = f"{least[SHARED]:,.0f} / {least[WITHOUT]:,.0f} tokens/s, the less of both networks"
    ratio = least[SHARED] / least[WITHOUT]
    yield Figure("decode_shared_over_without", ratio, 0.6, note=note, any_size=True)
