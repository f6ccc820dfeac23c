"""All that an engine does on a GPU, end to end: Triton's kernels in the interpreter, decode steps
captured, and greedy answers that are those of the dense network.

Instead of a graph's replay, the captured function runs again; see test_graphs.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from relquery.engine.requests.pieces import At
from relquery.model.torch_runtime import attention
from relquery.model.torch_runtime.graphs import GraphedSteps
from relquery.model.torch_runtime.on_gpu import GpuAttention
from tests.model.oracle.architectures import (
    model_of,
)
from tests.model.test_spans import Spec, check

pytest.importorskip("triton")
RNG = np.random.default_rng(0)
ONE, OTHER = (tuple(RNG.integers(3, 97, n).tolist()) for n in (9, 6))


class Captured:
    """Counts of the graphs that were captured, and of the steps that ran as one."""

    def __init__(self) -> None:
        self.graphs = self.steps = 0

    def __call__(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.graphs += 1

        def run() -> Tensor:
            self.steps += 1
            return compute()

        return run


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Captured]:
    """Makes a network of the tests run as it would on a GPU. Returns what it captures."""

    def of(name: str) -> Captured:
        counts, forward = Captured(), model_of(name, "torch")[0].forward
        monkeypatch.setattr(forward, "_graphs", GraphedSteps(forward.network, counts))
        # After the network was tried, which would take the interpreter long.
        monkeypatch.setattr(attention, "kernels_of", lambda device: GpuAttention)
        return counts

    return of


@pytest.mark.long
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_one_graph_serves_steps_after_several_spans(captured: Any, name: str) -> None:
    counts = captured(name)
    check(name, [(5, ONE, OTHER, 6), (OTHER, 7, ONE, 8)], answer=3)
    assert (counts.graphs, counts.steps) == (1, 2)


def test_a_step_that_sees_later_positions_is_no_graph(captured: Any) -> None:
    counts = captured("llama")
    check("llama", [(At(20), ONE[:4], At(4), 5, 6)], answer=2)
    assert counts.steps == 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["gemma3", "bloom"])
def test_windows_and_biases_go_by_distance_where_later_positions_are_seen(
    captured: Any, name: str
) -> None:
    counts = captured(name)
    check(name, [(At(20), ONE, At(4), 5, 6), (At(30), OTHER, At(9), 7)], answer=2)
    assert counts.steps == 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_steps_run_in_slices(captured: Any, name: str) -> None:
    captured(name)
    specs: list[Spec] = [(5, ONE, OTHER, 6), (OTHER, 7, ONE, 8)]
    room: dict[str, Any] = {"max_input": 400, "max_num_seqs": 1}
    check(name, [*specs, *specs], answer=1, cache_tokens=16, slice_tokens=7, **room)
