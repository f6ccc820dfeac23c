"""What would be CUDA graphs: everything that changes from step to step is in the same place.

There is no GPU here. Instead of a graph's replay, the captured function runs again, which sees what
a graph would see: the tensors of the step that was captured, and nothing of the present step's.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from relquery.arrays import Int64s
from relquery.model.torch_runtime import attention
from relquery.model.torch_runtime.attention import PackedBatch
from relquery.model.torch_runtime.cache import KVCache
from relquery.model.torch_runtime.executor import Forward
from relquery.model.torch_runtime.graphs import MOST, GraphedSteps
from relquery.model.torch_runtime.on_gpu import GpuAttention
from tests.model.forward.decoding import Decoding
from tests.model.oracle.architectures import build, prepared
from tests.model.oracle.strategies import chunk_of

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "kernels_of", lambda device: GpuAttention)


class Graphed:
    """A forward pass whose decode steps are captured. captures, runs: what became of them."""

    def __init__(self, name: str) -> None:
        self.network = prepared(build(name)).network
        self.stock = Forward(self.network)
        self.captures = self.runs = 0
        self.graphed = GraphedSteps(self.network, self.capture)

    def capture(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.captures += 1

        def run() -> Tensor:
            self.runs += 1
            return compute()

        return run

    def __call__(self, tokens: Int64s, given: PackedBatch, wanted: Sequence[int]) -> Tensor:
        logits = self.graphed(tokens, given)
        return self.stock(tokens, given, wanted) if logits is None else logits


class Told:
    """A network whose logits are what it was told of each token: id, position and slot."""

    def __call__(self, **given: Any) -> Any:
        told = given["input_ids"][0], given["position_ids"][0], given["batch"]._slots
        return SimpleNamespace(logits=torch.stack(told, 1)[given["logits_to_keep"]][None])


def some_cache() -> KVCache:
    cache = KVCache(400)
    cache.write(0, torch.arange(400), torch.zeros(400, 1, 8), torch.zeros(400, 1, 8))
    return cache


def step(count: int, cache: KVCache, first: int, tokens: int = 1) -> tuple[Int64s, PackedBatch]:
    """So many tokens of each of some prompts, after `first` others of their own."""
    room = first + tokens
    chunks = [chunk_of(range(n * room, (n + 1) * room), first, n) for n in range(count)]
    ids = np.concatenate([chunk.tokens for chunk in chunks]).astype(np.int64)
    return ids + 7, PackedBatch(chunks, cache, True, torch.device("cpu"))


def test_a_graph_serves_the_steps_of_its_size_and_cache_with_what_is_theirs() -> None:
    made: list[int] = []

    def capture(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        made.append(1)
        return compute

    one, other = some_cache(), some_cache()
    graphed = GraphedSteps(cast(Any, Told()), capture)
    for graphs, cache, count, first in (
        (1, one, 3, 2), (1, one, 4, 2), (2, one, 5, 2), (2, one, 3, 2), (3, one, 1, 3),
        (4, other, 4, 2), (4, other, 3, 2), (5, one, 4, 2), (6, one, MOST, 2),
    ):  # fmt: skip
        tokens, given = step(count, cache, first)
        found = graphed(tokens, given)
        assert found is not None
        assert found.T.tolist() == [list(e) for e in (tokens, given.positions, given.slots)]
        assert len(made) == graphs
    assert graphed(*step(MOST + 1, one, 2)) is None
    assert graphed(*step(2, one, 2, tokens=2)) is None
    assert graphed(*step(2, KVCache(400), 2)) is None, "the first step shapes the cache"


def test_what_cannot_be_captured_runs_as_always(caplog: pytest.LogCaptureFixture) -> None:
    def fail(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        raise RuntimeError("operation not permitted when stream is capturing")

    graphed, cache = GraphedSteps(cast(Any, Told()), fail), some_cache()
    assert [graphed(*step(count, cache, 2)) for count in (2, 1)] == [None, None]
    (record,) = caplog.records
    assert "do not run as CUDA graphs" in record.getMessage()


@pytest.mark.long
@pytest.mark.parametrize("name", ["llama", "gemma2"])
@torch.inference_mode()
def test_steps_of_any_size_follow_one_another(name: str) -> None:
    forward = Graphed(name)
    decoding = Decoding(build(name), cast(Any, forward), prompts=9, seed=1)
    forward.captures = forward.runs = 0
    for count in (1, 3, 9, 2, 9, 7, 1, 4):
        decoding.step(count)
    assert forward.runs == 8
    assert forward.captures < 8


@pytest.mark.long
@torch.inference_mode()
def test_what_a_graph_reads_outlives_its_capture() -> None:
    """A graph reads addresses, so a tensor freed after the capture would be another's memory."""
    captured: list[weakref.ref[Tensor]] = []

    class Forgetting(Graphed):
        def capture(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
            cells = [cell.cell_contents for cell in compute.__closure__ or ()]
            captured.extend(weakref.ref(one) for one in cells if isinstance(one, Tensor))
            logits = compute()
            return lambda: logits

    forward = Forgetting("llama")
    Decoding(build("llama"), cast(Any, forward), 2, 5).step(2)
    gc.collect()
    assert captured
    assert all(tensor() is not None for tensor in captured)
