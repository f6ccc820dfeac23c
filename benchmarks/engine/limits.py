"""What this machine can do, and how near a forward pass comes to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.stock import executor_of, native, parameters
from relquery._native import Network, Rows, Seen, Slice, Store
from relquery.model.formats.safetensors import narrow
from relquery.model.native_runtime import NOT_ADAPTED, cores

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

READ_BYTES = 2**29
"""Of the array that is read to find the memory's bandwidth; no cache holds it."""
SQUARE = 2_048
"""Rows of the matrices whose product gives the peak rate."""
PRODUCTS = 8
"""Products that are measured at once, so that what is around them counts for little."""
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

    seconds: it took, stock: the network's own took. weights: bytes of the weights that it reads.
    operations: of its products.
    """

    tokens: int
    seconds: float
    stock: float
    weights: int
    operations: float


@dataclass(slots=True)
class Runs:
    """What is timed to make a Pass of so many tokens."""

    tokens: int
    forward: Run
    stock: Run
    weights: int
    operations: float

    def passed(self, seconds: float, stock: float) -> Pass:
        """The pass, by the seconds of each run."""
        return Pass(self.tokens, seconds, stock, self.weights, self.operations)


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
    model: ServedModel, stock: Any, shapes: Sequence[tuple[int, int, int]], least: float
) -> tuple[Machine, list[Pass]]:
    """Measure the machine and forward passes, with the threads that torch uses.

    stock: the network without our changes. shapes: of each pass, how many prompts, and tokens of
    each that are new and cached. least: see `in_turns`.
    """
    import torch

    with torch.inference_mode():
        machine = _machine_runs(native(model).kind)
        passes = [_pass_runs(model, stock, *shape) for shape in shapes]
        timed = [*machine, *(run for each in passes for run in (each.forward, each.stock))]
        read, multiplied, *seconds = in_turns(timed, least)
        found = [
            each.passed(*seconds[2 * index : 2 * index + 2]) for index, each in enumerate(passes)
        ]
    return Machine(READ_BYTES / read, PRODUCTS * 2 * SQUARE**3 / multiplied), found


def measure_machine(kind: int, least: float) -> Machine:
    """What the machine can do with numbers of a kind. least: see `in_turns`."""
    read, multiplied = in_turns(_machine_runs(kind), least)
    return Machine(READ_BYTES / read, PRODUCTS * 2 * SQUARE**3 / multiplied)


def _machine_runs(kind: int) -> list[Run]:
    """Reading memory, and products of large matrices."""
    array = np.ones(READ_BYTES // 8)
    numbers = np.random.default_rng(0).normal(size=SQUARE * SQUARE).astype(np.float32)
    network = Network(kind)
    weight = network.add_weight([Rows(narrow(numbers, kind), kind, SQUARE, SQUARE)], None, cores())
    source, result = network.add_buffer(SQUARE), network.add_buffer(SQUARE)
    network.look_up(weight, -1, source)
    for _ in range(PRODUCTS):
        network.multiply(source, weight, result)
    none, tokens, empty = Store([], 0, kind), np.arange(SQUARE), np.empty(0, dtype=np.int64)
    lists, plain = (empty,) * 10, (NOT_ADAPTED,) * 2
    seen = Seen(*lists, 0, empty, empty, [])  # nothing attends
    given = Slice(tokens, tokens, tokens, seen, tokens, None, *plain)
    return [array.sum, lambda: network.run([given], none, none, cores())]


def _pass_runs(model: ServedModel, stock: Any, prompts: int, tokens: int, cached: int) -> Runs:
    """The forward pass of prompts with `tokens` new tokens each after `cached` cached ones."""
    import torch
    from transformers import DynamicCache

    from relquery.engine.executor import Chunk, Segment
    from relquery.engine.requests.request import Draw

    executor = executor_of(model, prompts * (cached + tokens))
    slots = np.arange(prompts * (cached + tokens)).reshape(prompts, -1)
    ids = np.random.default_rng(0).integers(10, model.vocabulary, slots.shape)

    def chunks(first: int, last: int) -> list[Chunk]:
        return [
            Chunk(
                row,
                ids[row, first:last].astype(np.int32),
                first,
                (Segment(slots[row, :first]),) if first else (),
                slots[row, first:last],
                Draw(),
            )
            for row in range(prompts)
        ]

    if cached:
        executor.execute(chunks(0, cached))
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

    rows, each = prompts * tokens, native(model).decoder
    head = each.hidden * each.vocabulary
    size = 4 if native(model).kind == 0 else 2
    weights = size * (parameters(model) + head)
    operations = 2.0 * (rows * parameters(model) + prompts * head)
    forward = partial(executor.execute, chunks(cached, cached + tokens))
    return Runs(rows, forward, run_stock, weights, operations)


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
        intensities = [each.operations / each.weights for each in measured]
        edge = machine.peak / machine.bandwidth
        reach = sorted({*intensities, edge})
        roof = [min(machine.peak, machine.bandwidth * x) / 1e9 for x in reach]
        (line,) = axes.plot(reach, roof, "-", label=f"{dtype}: bandwidth and peak, measured")
        done = [each.operations / each.seconds / 1e9 for each in measured]
        axes.plot(intensities, done, "o", color=line.get_color(), label=f"{dtype}: forward passes")
        for x, y, each in zip(intensities, done, measured, strict=True):
            axes.annotate(f"{each.tokens:,}", (x, y), (4, -10), textcoords="offset points")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=120)
