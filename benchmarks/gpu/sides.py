"""Who computes the same jobs: our engine, transformers, and vLLM where it is installed."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine import worker
from benchmarks.engine.jobs import Job, Prompts
from benchmarks.engine.worker import runs_of, vllm_on_gpu
from relquery.model.torch_runtime.load import TorchModel

AT_ONCE = 64
"""Prompts of a batch of transformers."""
Run = Callable[[Prompts, int], float]
"""Generates so many tokens after each prompt, and returns the seconds."""


class Side:
    """A side: asked for a job, it begins with an empty cache. run, forget: see worker.py."""

    def __init__(self, run: Run, forget: Callable[[], None]) -> None:
        self._run, self._forget = run, forget

    def ask(self, job: Job) -> float:
        """Seconds of a job."""
        self.ready(job)
        return self.run(job)

    def ready(self, job: Job) -> None:
        """Have in the cache what a job has computed before, and nothing else."""
        self._forget()
        if job.before:
            self._run(job.before, 1)

    def run(self, job: Job) -> float:
        """Seconds of a job that the cache is ready for."""
        return self._run(job.prompts, job.tokens)


def ours(model: TorchModel, slots: int, step_tokens: int, **limits: Any) -> Side:
    """Our engine. limits: see EngineConfig."""
    return _timed(runs_of(model, slots, step_tokens, slice_tokens=step_tokens, **limits))


def _timed(side: worker.Side) -> Side:
    run, forget = side
    return Side(lambda prompts, tokens: run(prompts, tokens)[0], forget)


def without_graphs(model: TorchModel, side: Side) -> Side:
    """The same, whose decode steps are launched kernel by kernel."""
    graphs = model.forward._graphs

    def run(prompts: Prompts, tokens: int) -> float:
        model.forward._graphs = None
        try:
            return side._run(prompts, tokens)
        finally:
            model.forward._graphs = graphs

    return Side(run, side._forget)


def transformers(stock: Any, *, compiled: bool = False) -> Side:
    """`generate` with torch's attention and a static cache, prompts padded on the left; one token
    is a forward pass. compiled: let it compile its decode steps, which takes minutes."""

    @torch.inference_mode()
    def run(prompts: Prompts, tokens: int) -> float:
        device = stock.device
        finish(device)
        begin = time.perf_counter()
        for first in range(0, len(prompts), AT_ONCE):
            some = prompts[first : first + AT_ONCE]
            width = max(map(len, some))
            ids = torch.tensor(
                [[0] * (width - len(prompt_ids)) + prompt_ids for prompt_ids in some], device=device
            )
            seen = torch.tensor(
                [[0] * (width - len(prompt_ids)) + [1] * len(prompt_ids) for prompt_ids in some],
                device=device,
            )
            if tokens == 1:
                positions = (seen.cumsum(-1) - 1).clamp(min=0)
                given = {
                    "attention_mask": None if bool(seen.all()) else seen,
                    "position_ids": positions,
                }
                output = stock(input_ids=ids, use_cache=False, logits_to_keep=1, **given)
                output.logits[:, -1].argmax(-1).cpu()
                continue
            stock.generate(
                ids,
                attention_mask=seen,
                do_sample=False,
                min_new_tokens=tokens,
                max_new_tokens=tokens,
                cache_implementation="static",
                disable_compile=not compiled,
            ).cpu()
        return time.perf_counter() - begin

    return Side(run, lambda: None)


def vllm(folder: Path, stock: Any, dtype: str, step_tokens: int) -> Side | None:
    """vLLM on a network of the same shape, with its own random weights; None where it is not
    installed, or on a CPU."""
    if find_spec("vllm") is None or stock.device.type != "cuda":
        return None
    stock.config.save_pretrained(folder)
    return _timed(vllm_on_gpu(str(folder), dtype, step_tokens))


def finish(device: torch.device) -> None:
    """Wait until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
