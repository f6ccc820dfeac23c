"""Turns of the sides, within the time that a run may take, and what a device is told meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

from benchmarks.engine.jobs import Job, Measure
from benchmarks.gpu.sides import Side

Timed = Callable[[], float]
"""Does something, and returns the seconds that it took."""
COUNTED = {
    "launches": ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx"),
    "graphs": ("cudaGraphLaunch",),
    "copies": ("cudaMemcpyAsync",),
    "waits": ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"),
}
"""Calls of CUDA's runtime, by what a profile calls them."""


@dataclass(slots=True)
class Budget:
    """Seconds of a run that are left."""

    seconds: float
    began: float = field(default_factory=time.perf_counter)

    @property
    def left(self) -> float:
        """Seconds."""
        return self.seconds - (time.perf_counter() - self.began)


def in_turns(sides: Mapping[str, Timed], rounds: int, budget: Budget) -> dict[str, list[float]]:
    """Seconds of the sides by round; who begins alternates.

    A round before the first, in which kernels are compiled and graphs captured, is not counted. No
    round begins that would not end in the time that is left; the first is always counted.
    """
    names, found = tuple(sides), {name: list[float]() for name in sides}
    for number in range(rounds + 1):
        begin = time.perf_counter()
        for name in names if number % 2 else reversed(names):
            seconds = sides[name]()
            if number:
                found[name].append(seconds)
        if number and budget.left < time.perf_counter() - begin:
            break
    return found


def of_measure(side: Side, measure: Measure) -> Timed:
    """Seconds of a measure's job, less those of its shorter one."""

    def timed() -> float:
        less = side.ask(measure.less) if measure.less else 0.0
        return max(side.ask(measure.job) - less, 1e-9)

    return timed


def ratios(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """Each side's seconds over those of the first: the median of the rounds."""
    first, *others = seconds
    return {
        name: median(
            theirs / ours for theirs, ours in zip(seconds[name], seconds[first], strict=True)
        )
        for name in others
    }


def profile(side: Side, job: Job) -> dict[str, Any]:
    """What a job makes the CPU and the device do, once it was run before."""
    on_gpu = torch.cuda.is_available()
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if on_gpu else []
    side.ask(job)
    side.ready(job)
    with torch.profiler.profile(activities=kinds) as told:
        seconds = side.run(job)
    events = told.key_averages()
    calls = {each.key: each.count for each in events}
    profiled: dict[str, Any] = {
        name: sum(calls.get(each, 0) for each in keys) for name, keys in COUNTED.items()
    }
    operators = sum(count for key, count in calls.items() if key.startswith("aten::"))
    busy = sum(getattr(each, "self_device_time_total", 0.0) for each in events) / 1e6
    return {**profiled, "operators": operators, "device_seconds": busy, "seconds": seconds}


def kernels_compiled() -> int:
    """How many variants of our Triton kernels were compiled so far."""
    from relquery.model.torch_runtime import triton_kernels

    kernels = (triton_kernels.attend_tasks, triton_kernels.merge_tokens)
    caches = [each for kernel in kernels for each in getattr(kernel, "device_caches", {}).values()]
    return sum(len(each[0]) for each in caches)
