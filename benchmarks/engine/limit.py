"""The forward pass beside what the machine could do at most."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.engine.beside import DTYPES
from benchmarks.engine.limits import Machine, Pass, measure, plot_roofline
from benchmarks.engine.network import make_network
from benchmarks.engine.overhead import Overhead, measure_overhead
from benchmarks.engine.sizes import FULL, Sizes, choose
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part, Plot
from benchmarks.templates import template

WORDS = template("engine")
PICTURE = "engine_roofline.png"


@dataclass(slots=True)
class Limit(Part):
    """The part. found: by number format, the machine's limits and passes: decode, then prefill."""

    name = "limit"
    title = "Beside the machine's limit"
    found: dict[str, tuple[Machine, list[Pass]]] = field(default_factory=dict)
    sizes: Sizes = FULL

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        import torch
        from transformers import AutoModelForCausalLM

        from relquery.model.load import load
        from relquery.model.torch_runtime.load import DTYPES as TYPES

        torch.set_num_threads(settings.threads)
        self.sizes = sizes = choose(settings.quick)
        with TemporaryDirectory() as temporary:
            folder = Path(temporary)
            make_network(folder, sizes, settings.data, settings.seed)
            for dtype in DTYPES:
                model = load(str(folder), dtype=dtype)
                make: Any = AutoModelForCausalLM.from_pretrained
                stock = make(folder, dtype=TYPES[dtype], attn_implementation="sdpa")
                shapes = [(batch, 1, sizes.start) for batch in sizes.batches]
                shapes.append((2, sizes.prefill[1], 0))
                machine, passes = measure(model, stock, shapes, sizes.seconds)
                self.found[dtype] = machine, passes
                say(f"{dtype}: {machine}, {passes}")
                yield from figures(dtype, machine, passes)
                for batch in (sizes.batches[0], sizes.batches[-1]):
                    overhead = measure_overhead(folder, dtype, batch, sizes, settings.seed)
                    say(f"{dtype}, {batch}: {overhead}")
                    yield overhead_figure(dtype, batch, overhead)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        for dtype, (machine, passes) in self.found.items():
            batch = self.sizes.batches[-1]
            (shared,) = (each for each in passes if each.tokens == batch)
            computing, reading = shared_step(shared, machine, self.sizes)
            yield WORDS.block(
                "limit",
                dtype=dtype,
                bandwidth=machine.bandwidth / 1e9,
                peak=machine.peak / 1e9,
                batch=batch,
                overlapped=1e3 * max(computing, reading),
                apart=1e3 * (computing + reading),
            )
        yield from table(
            ("numbers", "tokens", "pass", "weights read", "transformers"),
            [
                (
                    dtype,
                    f"{each.tokens:,}",
                    f"{1e3 * each.seconds:.2f} ms",
                    f"{1e3 * each.weights / machine.bandwidth:.2f} ms",
                    f"{1e3 * each.stock:.2f} ms",
                )
                for dtype, (machine, passes) in self.found.items()
                for each in passes
            ],
        )
        yield WORDS.block("overhead")
        if PICTURE in drawn:
            yield WORDS.block("roofline", picture=PICTURE)

    def pictures(self) -> Mapping[str, Plot]:
        """See Part."""
        return {PICTURE: partial(plot_roofline, self.found)}


def overhead_figure(dtype: str, batch: int, found: Overhead) -> Figure:
    """What a decode step takes in Python: milliseconds of one request's, else its share."""
    name = f"python_of_decode_{batch}_{dtype}"
    note = f"{1e3 * found.outside:.2f} of {1e3 * found.step:.2f} ms"
    if batch == 1:
        return Figure(f"{name}_ms", 1e3 * found.outside, 1.0, at_least=False, note=note)
    return Figure(name, found.outside / found.step, 0.05, at_least=False, note=note)


def shared_step(one: Pass, machine: Machine, sizes: Sizes) -> tuple[float, float]:
    """Seconds for the operations and for the reading of a decode step whose requests share a part
    of their context. one: the pass of as many tokens without context."""
    own = sizes.own + sizes.steps / 2  # keys of a request, in the middle of what is measured
    width = sizes.hidden * sizes.layers
    operations = one.operations + 4 * one.tokens * (sizes.shared + own) * width
    number = 2 * one.weights / (one.operations / one.tokens)  # bytes: a weight has two operations
    read = one.weights + 2 * (sizes.shared + one.tokens * own) * width * number
    return operations / machine.peak, read / machine.bandwidth


def figures(dtype: str, machine: Machine, passes: list[Pass]) -> Iterator[Figure]:
    """How near the first and the last pass come to the machine's limits."""
    first, *_, last = passes
    read = first.weights / machine.bandwidth
    note = f"{1e3 * read:.2f} / {1e3 * first.seconds:.2f} ms"
    yield Figure(f"decode_1_of_bandwidth_{dtype}", read / first.seconds, 0.8, note=note)
    peak = last.operations / machine.peak
    note = f"{1e3 * peak:.1f} / {1e3 * last.seconds:.1f} ms, {last.tokens:,} tokens"
    yield Figure(f"prefill_of_peak_{dtype}", peak / last.seconds, 0.7, note=note)
    note = f"{1e3 * first.stock:.2f} / {1e3 * first.seconds:.2f} ms"
    name = f"decode_1_over_transformers_{dtype}"
    yield Figure(name, first.stock / first.seconds, 1.2, note=note, any_size=True)
