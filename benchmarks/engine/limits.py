"""What this machine can do, and how near a forward pass comes to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from relquery.model.networks.load import LoadedModel

READ_BYTES = 2**29
"""Of the array that is read to find the memory's bandwidth; no cache holds it."""
SQUARE = 2_048
"""Rows of the matrices whose product gives the peak rate."""


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


def best(run: Callable[[], object], least: float) -> float:
    """Seconds of the fastest run, of those that begin within `least` seconds, after a warm-up."""
    run()
    end, fastest = time.perf_counter() + least, float("inf")
    while time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        fastest = min(fastest, time.perf_counter() - begin)
    return fastest


def measure_machine(dtype: str, least: float) -> Machine:
    """Measure bandwidth and peak with the threads that torch uses. least: see `best`."""
    import torch

    from relquery.model.forward.linear import PackedWeight
    from relquery.model.networks.load import DTYPES

    array = torch.ones(READ_BYTES // 8, dtype=torch.float64)
    bandwidth = READ_BYTES / best(array.sum, least)
    weight = PackedWeight(torch.randn(SQUARE, SQUARE, dtype=DTYPES[dtype]), None)
    rows = torch.randn(SQUARE, SQUARE, dtype=DTYPES[dtype])
    with torch.inference_mode():
        return Machine(bandwidth, 2 * SQUARE**3 / best(lambda: weight(rows), least))


def measure_pass(
    model: LoadedModel, stock: Any, prompts: int, tokens: int, cached: int, least: float
) -> Pass:
    """Measure the forward pass of prompts with `tokens` new tokens each after `cached` cached ones.

    stock: the network without our changes. least: see `best`.
    """
    import torch

    from relquery.engine.executor import Chunk, Segment
    from relquery.model.attention.batch import PackedBatch
    from relquery.model.cache.device import KVCache
    from relquery.model.forward.linear import padded_rows

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

    with torch.inference_mode():
        if cached:
            model.forward(*batch(0, cached), [])
        given = batch(cached, cached + tokens)
        wanted = [tokens * (row + 1) - 1 for row in range(prompts)]
        seconds = best(lambda: model.forward(*given, wanted), least)
        attention = _attention_seconds(model, given[1], least)
        rows, last = prompts * tokens, len(wanted)
        products, weights, operations = 0.0, 0, 0.0
        for packed, count in _products(model, rows, last):
            inputs = torch.randn(padded_rows(count), packed.count // packed.outputs)
            inputs = inputs.to(model.network.dtype)
            products += best(lambda p=packed, x=inputs: p(x), least / 10)  # type: ignore[misc]
            weights += packed.nbytes
            operations += 2.0 * count * packed.count
        whole = torch.from_numpy(ids)
        past = stock(whole[:, :cached], use_cache=True).past_key_values if cached else None

        def run_stock() -> None:
            stock(
                whole[:, cached:],
                past_key_values=past,
                use_cache=past is not None,
                logits_to_keep=1,
            )
            if past is not None:
                past.crop(-tokens)

        return Pass(
            rows, seconds, best(run_stock, least), products + attention, weights, operations
        )


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


def _attention_seconds(model: LoadedModel, batch: Any, least: float) -> float:
    """Seconds of attention in all layers, whose keys and values are stored."""
    import torch

    config: Any = model.network.config
    heads, width = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    queries = torch.randn(batch.tokens, heads, width).to(model.network.dtype)
    layers = range(config.num_hidden_layers)

    def run() -> None:
        for layer in layers:
            batch.attend(layer, queries, scale=width**-0.5)

    return best(run, least)


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
