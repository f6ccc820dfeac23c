"""All parts on one network, one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from benchmarks.engine.jobs import measures
from benchmarks.gpu import sides as sides_
from benchmarks.gpu.jobs import filter_jobs, module_jobs
from benchmarks.gpu.network import interpret, make_networks
from benchmarks.gpu.sides import Side, finish
from benchmarks.gpu.sizes import Sizes
from benchmarks.gpu.timing import Budget, Timed, in_turns, kernels_compiled, of_measure, profile
from benchmarks.gpu.timing import ratios as ratios_of
from benchmarks.spans import decode, moves
from relquery.config import EngineConfig
from relquery.engine.executor import Chunk

Found = dict[str, Any]
OURS, STOCK, VLLM, EAGER = "ours", "transformers", "vllm", "ours, no graphs"


class Parts:
    """Measures one network. compiled: see sides.transformers."""

    def __init__(
        self, spec: str, sizes: Sizes, device: str, dtype: str, seed: int, *, compiled: bool
    ) -> None:
        self.sizes, self.seed, self.dtype = sizes, seed, dtype
        numbers = getattr(torch, dtype)
        made = make_networks(spec, sizes.jobs.vocabulary, numbers, device, seed)
        self.model, self.stock = made
        if device == "cpu":
            interpret(self.model)
        slots, step = sizes.cache_tokens, sizes.step_tokens
        self.ours = sides_.ours(self.model, slots, step)
        self.bare = sides_.ours(self.model, slots, step, prefix_caching=False)
        self.eager = sides_.without_graphs(self.model, self.ours)
        self.theirs = sides_.transformers(self.stock, compiled=compiled)

    def all(self, budget: Budget) -> Iterator[Found]:
        """What each part found; parts for which no time is left are named."""
        parts: dict[str, Callable[[Budget], Iterator[Found]]] = {
            "modules": self.modules,
            "spans": self.spans,
            "store": self.store,
            "filter": self.filter,
            "jobs": self.jobs,
            "vllm": self.beside_vllm,
        }
        for name, part in parts.items():
            if budget.left <= 0:
                yield {"part": name, "left_out": "the time was over"}
                continue
            begin, before = time.perf_counter(), kernels_compiled()
            for result in part(budget):
                compiled = kernels_compiled() - before
                took = time.perf_counter() - begin
                yield {"part": name, **result, "kernels_compiled": compiled, "took": took}
                begin, before = time.perf_counter(), kernels_compiled()

    def modules(self, budget: Budget) -> Iterator[Found]:
        """Modules from the cache beside the same text, computed; answers of one token and more."""
        for tokens in (1, self.sizes.answer):
            jobs = module_jobs(self.sizes, self.seed, tokens)
            text = jobs["text"]
            timed: dict[str, Timed] = {
                OURS: partial(self.ours.ask, jobs["modules"]),
                "ours, as text": partial(self.ours.ask, text),
                STOCK: partial(self.theirs.ask, text),
            }
            if tokens > 1:
                timed[EAGER] = partial(self.eager.ask, jobs["modules"])
            yield self._raced(f"answer_{tokens}", timed, budget)
            for name, job in jobs.items():
                yield {"name": f"profile_{name}_{tokens}", **profile(self.ours, job)}

    def filter(self, budget: Budget) -> Iterator[Found]:
        """One token for each row of a table."""
        jobs = filter_jobs(self.sizes, self.seed)
        timed: dict[str, Timed] = {
            OURS: partial(self.ours.ask, jobs["ours"]),
            "ours, table order": partial(self.ours.ask, jobs["table"]),
            "ours, no reuse": partial(self.bare.ask, jobs["table"]),
            STOCK: partial(self.theirs.ask, jobs["table"]),
        }
        yield self._raced("filter", timed, budget)

    def jobs(self, budget: Budget) -> Iterator[Found]:
        """Prefill, decode of several batches, a shared context, and a hot prefix."""
        for each in measures(self.sizes.jobs, self.seed):
            timed = {OURS: of_measure(self.ours, each), STOCK: of_measure(self.theirs, each)}
            if each.less:
                timed[EAGER] = of_measure(self.eager, each)
            yield {**self._raced(each.name, timed, budget), "tokens": each.count}

    def spans(self, budget: Budget) -> Iterator[Found]:
        """Spans that are used at other positions, and decoding after some."""
        sizes = self.sizes.spans
        for tokens in sizes.spans:
            if budget.left > 0:
                done = partial(finish, self.stock.device)
                row = moves.measure(self.model, tokens, sizes.repeats, lambda text: None, done)
                yield {"name": f"moved_{tokens}", **asdict(row)}
        if budget.left > 0:
            yield {"name": "decoded", **asdict(decode.measure(self.model, sizes, self.seed))}

    def store(self, budget: Budget) -> Iterator[Found]:
        """States of all modules from host memory, beside computing them."""
        tokens = self.sizes.modules[0] * self.sizes.modules[1]
        config = EngineConfig(slice_tokens=self.sizes.step_tokens)
        executor = self.model.executor(config, tokens, lambda: 0.0)
        store, slots = executor.store(2**40, None, 0), np.arange(tokens)
        ids = np.random.default_rng(self.seed).integers(3, self.sizes.jobs.vocabulary - 3, tokens)
        chunk = Chunk(0, ids.astype(np.int32), 0, (), slots)

        def timed(run: Callable[[], object]) -> Timed:
            def seconds() -> float:
                begin = time.perf_counter()
                run()
                finish(self.stock.device)
                return time.perf_counter() - begin

            return seconds

        def load() -> None:
            assert store.load(b"modules", slots, 0)

        executor.execute([chunk])
        store.save(b"modules", slots)
        sides = {
            "loaded": timed(load),
            "computed": timed(lambda: executor.execute([chunk])),
            "saved": timed(lambda: store.save(b"modules", slots)),
        }
        yield {**self._raced("store", sides, budget), "tokens": tokens}

    def beside_vllm(self, budget: Budget) -> Iterator[Found]:
        """The jobs beside vLLM, which starts last, as it takes minutes."""
        with TemporaryDirectory() as folder:
            step = self.sizes.step_tokens
            side = sides_.vllm(Path(folder), self.stock, self.dtype, step)
            if side is None:
                yield {"name": "vllm", "left_out": "not installed"}
                return
            for each in measures(self.sizes.jobs, self.seed):
                timed = {OURS: of_measure(self.ours, each), VLLM: of_measure(side, each)}
                yield {**self._raced(each.name, timed, budget), "tokens": each.count}
            yield from self._filter_of(side, budget)

    def _filter_of(self, side: Side, budget: Budget) -> Iterator[Found]:
        jobs = filter_jobs(self.sizes, self.seed)
        timed: dict[str, Timed] = {
            OURS: partial(self.ours.ask, jobs["ours"]),
            "vllm, our order": partial(side.ask, jobs["ours"]),
            "vllm, table order": partial(side.ask, jobs["table"]),
        }
        yield self._raced("filter", timed, budget)

    def _raced(self, name: str, timed: dict[str, Timed], budget: Budget) -> Found:
        seconds = in_turns(timed, self.sizes.rounds, budget)
        return {"name": name, "seconds": seconds, "ratios": ratios_of(seconds)}
