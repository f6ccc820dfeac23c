"""What this machine can do, and how near a forward pass comes to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from relquery.model.networks.load import LoadedModel

READ_BYTES = 2**29
"""Of the array that is read to find the memory's bandwidth; no cache holds it."""
SQUARE = 2_048
"""Rows of the matrices whose product gives the peak rate."""
ROUNDS = 5
Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Machine:
    """bandwidth: bytes a second that are read from memory. peak: operations a second of a large
    product with packed weights."""

    bandwidth: float
    peak: float


@dataclass(frozen=True, slots=True)
class Pass:
    """A forward pass of `tokens` tokens.

    seconds: it took, stock: the network's own took, parts: its products and attention take by
    themselves. weights: bytes of the weights that it reads. operations: of its products.
    """

    tokens: int
    seconds: float
    stock: float
    parts: float
    weights: int
    operations: float


@dataclass(slots=True)
class Runs:
    """What is timed to make a Pass of so many tokens. products: each of the pass's weights."""

    tokens: int
    forward: Run
    stock: Run
    attention: Run
    products: list[Run]
    weights: int
    operations: float

    def all(self) -> list[Run]:
        """All of them, in the order that `passed` takes their seconds."""
        return [self.forward, self.stock, self.attention, *self.products]

    def passed(self, seconds: Sequence[float]) -> Pass:
        """The pass, by the seconds of each run."""
        forward, stock, *parts = seconds
        return Pass(self.tokens, forward, stock, sum(parts), self.weights, self.operations)


def in_turns(runs: Sequence[Run], least: float) -> list[float]:
    """Seconds of the fastest call of each run.

    The speed of a shared machine changes by the minute, so runs that are compared take turns:
    ROUNDS times, each for `least` seconds at once.
    """
    fastest = [float("inf")] * len(runs)
    for run in runs:
        run()
    for _ in range(ROUNDS):
        for number, run in enumerate(runs):
            end = time.perf_counter() + least
            while (begin := time.perf_counter()) < end:
                run()
                fastest[number] = min(fastest[number], time.perf_counter() - begin)
    return fastest


def measure(
    model: LoadedModel, stock: Any, shapes: Sequence[tuple[int, int, int]], least: float
) -> tuple[Machine, list[Pass]]:
    """Measure the machine and forward passes, with the threads that torch uses.

    stock: the network without our changes. shapes: of each pass, how many prompts, and tokens of
    each that are new and cached. least: see `in_turns`.
    """
    import torch

    with torch.inference_mode():
        machine = _machine_runs(model.network.dtype)
        passes = [_pass_runs(model, stock, *shape) for shape in shapes]
        groups = [machine, *(each.all() for each in passes)]
        seconds = iter(in_turns([run for group in groups for run in group], least))
        read, multiplied = (next(seconds) for _ in machine)
        found = [each.passed([next(seconds) for _ in each.all()]) for each in passes]
    return Machine(READ_BYTES / read, 2 * SQUARE**3 / multiplied), found


def _machine_runs(dtype: Any) -> list[Run]:
    """Reading memory, and a product of large matrices."""
    import torch

    from relquery.model.forward.packed import PackedWeight

    array = torch.ones(READ_BYTES // 8, dtype=torch.float64)
    weight = PackedWeight(torch.randn(SQUARE, SQUARE, dtype=dtype), None)
    rows = torch.randn(SQUARE, SQUARE, dtype=dtype)
    return [array.sum, lambda: weight(rows)]


def _pass_runs(model: LoadedModel, stock: Any, prompts: int, tokens: int, cached: int) -> Runs:
    """The forward pass of prompts with `tokens` new tokens each after `cached` cached ones."""
    import torch
    from transformers import DynamicCache

    from relquery.engine.executor import Chunk, Segment
    from relquery.model.attention.batch import PackedBatch
    from relquery.model.cache.device import KVCache
    from relquery.model.forward.packed import padded_rows

    cache = KVCache(prompts * (cached + tokens))
    device = torch.device("cpu")
    slots = np.arange(prompts * (cached + tokens)).reshape(prompts, -1)
    vocabulary = model.network.config.get_text_config().vocab_size
    ids = np.random.default_rng(0).integers(10, vocabulary, slots.shape)

    def batch(first: int, last: int) -> tuple[Any, PackedBatch]:
        chunks = [
            Chunk(
                row,
                ids[row, first:last].astype(np.int32),
                first,
                (Segment(slots[row, :first]),) if first else (),
                slots[row, first:last],
            )
            for row in range(prompts)
        ]
        return ids[:, first:last].reshape(-1), PackedBatch(chunks, cache, True, device)

    if cached:
        model.forward(*batch(0, cached), [])
    given = batch(cached, cached + tokens)
    wanted = [tokens * (row + 1) - 1 for row in range(prompts)]
    products: list[Run] = []
    rows, weights, operations = prompts * tokens, 0, 0.0
    for packed, count in _products(model, rows, len(wanted)):
        inputs = torch.randn(padded_rows(count), packed.count // packed.outputs)
        products.append(partial(packed, inputs.to(model.network.dtype)))
        weights += packed.nbytes
        operations += 2.0 * count * packed.count
    whole = torch.from_numpy(ids)
    past = None
    if cached:
        past = DynamicCache(config=stock.config)
        stock(whole[:, :cached], None, None, past, use_cache=True, logits_to_keep=1)

    def run_stock() -> None:
        # By position: the name of the fourth argument differs between versions of transformers.
        new = whole[:, cached:]
        stock(new, None, None, past, use_cache=past is not None, logits_to_keep=1)
        if past is not None:
            past.crop(-tokens)

    forward = partial(model.forward, *given, wanted)
    attention = _attention_run(model, given[1])
    return Runs(rows, forward, run_stock, attention, products, weights, operations)


def _products(model: LoadedModel, rows: int, last: int) -> list[tuple[Any, int]]:
    """The packed weights of a pass with the rows of each; few rows are needed after attention in
    the last layer."""
    network: Any = model.network
    found = []
    for number, layer in enumerate(network.model.layers):
        count = last if number == len(network.model.layers) - 1 else rows
        attention, mlp = layer.self_attn, layer.mlp
        found += [
            (attention.q_proj.packed, rows),
            (attention.o_proj.packed, count),
            (mlp.gate_proj.packed, count),
            (mlp.down_proj.packed, count),
        ]
    return [*found, (network.lm_head.packed, last)]


def _attention_run(model: LoadedModel, batch: Any) -> Run:
    """Attention in all layers, whose keys and values are stored."""
    import torch

    config: Any = model.network.config
    heads, width = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    queries = torch.randn(batch.tokens, heads, width).to(model.network.dtype)
    layers = range(config.num_hidden_layers)

    def run() -> None:
        for layer in layers:
            batch.attend(layer, queries, scale=width**-0.5)

    return run


def plot_roofline(passes: dict[str, tuple[Machine, list[Pass]]], path: Path) -> None:
    """Write a PNG: operations a second over operations per byte of weights, below the roofs.

    passes: by number format. Raises ImportError without matplotlib.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot(
        xscale="log",
        yscale="log",
        xlabel="operations per byte of weights",
        ylabel="GFLOP/s of matrix products, in a whole forward pass",
    )
    for dtype, (machine, measured) in passes.items():
        at = [each.operations / each.weights for each in measured]
        edge = machine.peak / machine.bandwidth
        reach = sorted({*at, edge})
        roof = [min(machine.peak, machine.bandwidth * x) / 1e9 for x in reach]
        (line,) = axes.plot(reach, roof, "-", label=f"{dtype}: bandwidth and peak, measured")
        done = [each.operations / each.seconds / 1e9 for each in measured]
        axes.plot(at, done, "o", color=line.get_color(), label=f"{dtype}: forward passes")
        for x, y, each in zip(at, done, measured, strict=True):
            axes.annotate(f"{each.tokens:,}", (x, y), (4, -10), textcoords="offset points")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=120)
