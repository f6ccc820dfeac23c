"""Engines that serve a workload, one for each policy, on one network of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.prefill_only.serving.traffic import Engine, Mode
from benchmarks.prefill_only.workloads import Workload
from benchmarks.stock import executor_of
from benchmarks.turns import AlternatingExecutor, SkippingClock, Turn
from relquery.config import EngineConfig
from relquery.engine.calibration import calibrate
from relquery.engine.cost import LinearCost
from relquery.engine.executor import Chunk, RealClock
from relquery.engine.requests.request import Draw
from relquery.errors import RelqueryError

if TYPE_CHECKING:
    from relquery.model.served import ServedExecutor, ServedModel

TRIES = 5


class Engines:
    """One engine per policy, each with an allocated cache of the workload's size."""

    def __init__(self, model: ServedModel, workload: Workload, cost: LinearCost) -> None:
        self._model, self._workload, self._cost = model, workload, cost
        self._executors: dict[Mode, ServedExecutor] = {}

    def open(self, mode: Mode, turn: Turn) -> Engine:
        """An engine whose steps pass the turn on."""
        if mode not in self._executors:
            executor = self._executors[mode] = executor_for(self._model, self._workload)
            executor.execute(
                [Chunk(0, np.zeros(1, np.int32), 0, (), np.zeros(1, np.int64), Draw())]
            )
            executor.reserve()
        clock = SkippingClock(turn)
        executor = self._executors[mode]
        return Engine(AlternatingExecutor(executor, turn), clock, clock.skip, self._cost)


def executor_for(model: ServedModel, workload: Workload) -> ServedExecutor:
    """An executor with a cache of the workload's size, which cuts steps as the workload says."""
    return executor_of(model, workload.cache_tokens, workload.chunk)


def calibrated(model: ServedModel, seed: int) -> LinearCost:
    """What steps cost, measured quickly; anew while noise hides what a token costs."""
    limits = EngineConfig(cache_tokens=32_768)
    executor = executor_of(model, limits.cache_tokens)
    vocabulary, clock = len(model.tokenizer), RealClock()
    for _ in range(TRIES):
        fit = calibrate(executor, limits, clock, vocabulary=vocabulary, quick=True, seed=seed)
        if fit.cost.prefill_slope > 0:
            return fit.cost
    raise RelqueryError(f"The machine is too busy: {TRIES} fits found that tokens cost nothing.")
