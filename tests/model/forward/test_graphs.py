"""What would be CUDA graphs: everything that changes from step to step is in the same place.

There is no GPU here. Instead of a graph's replay, the captured function runs again, which sees what
a graph would see: the tensors of the step that was captured, and nothing of the present step's.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from relquery.arrays import Int64s
from relquery.model.attention import batch
from relquery.model.attention.batch import PackedBatch
from relquery.model.attention.on_gpu import GpuAttention
from relquery.model.forward.graphs import MOST, GraphedSteps
from relquery.model.forward.stock import Logits, StockForward
from relquery.model.networks.load import prepare
from tests.model.forward.decoding import Decoding
from tests.model.oracle.architectures import NoTokenizer, build

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "kernels_of", lambda device: GpuAttention)


class Graphed:
    """A forward pass whose decode steps are captured. captures, runs: what became of them."""

    def __init__(self, name: str) -> None:
        self.network = prepare(build(name), cast(Any, NoTokenizer()), name).network
        self.stock = StockForward(self.network)
        self.captures = self.runs = 0
        self.graphed = GraphedSteps(self.network, self.capture)

    def capture(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.captures += 1

        def run() -> Tensor:
            self.runs += 1
            return compute()

        return run

    def __call__(self, tokens: Int64s, given: PackedBatch, wanted: Sequence[int]) -> Logits:
        logits = self.graphed(tokens, given)
        return self.stock(tokens, given, wanted) if logits is None else Logits(logits)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
@torch.inference_mode()
def test_steps_of_any_size_follow_one_another(name: str) -> None:
    forward = Graphed(name)
    decoding = Decoding(build(name), forward, prompts=9, seed=1)
    forward.captures = forward.runs = 0  # a prompt's last token may have been a step by itself
    for count in (1, 3, 9, 2, 9, 7, 1, 4):
        decoding.step(count)
    assert forward.runs == 8
    assert forward.captures < 8


@torch.inference_mode()
def test_another_cache_is_another_graph() -> None:
    forward = Graphed("llama")
    one, other = (Decoding(build("llama"), forward, 2, seed) for seed in (2, 3))
    for decoding in (one, other, one):
        decoding.step(2)
    assert forward.captures == 3


@torch.inference_mode()
def test_what_cannot_be_captured_runs_as_always(caplog: pytest.LogCaptureFixture) -> None:
    def fail(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        raise RuntimeError("operation not permitted when stream is capturing")

    forward = Graphed("llama")
    forward.graphed = GraphedSteps(forward.network, fail)
    decoding = Decoding(build("llama"), forward, 2, 4)
    decoding.step(2)
    decoding.step(1)
    (record,) = caplog.records
    assert "do not run as CUDA graphs" in record.getMessage()


@torch.inference_mode()
def test_large_steps_are_not_captured() -> None:
    forward = Graphed("llama")
    decoding = Decoding(build("llama"), forward, MOST + 1, 5)
    forward.captures = forward.runs = 0
    decoding.step(MOST + 1)
    assert forward.captures == forward.runs == 0


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
    Decoding(build("llama"), forward, 2, 5).step(2)
    gc.collect()
    assert captured
    assert all(tensor() is not None for tensor in captured)
