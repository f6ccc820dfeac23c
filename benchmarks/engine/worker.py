"""One side of the comparison, in a process of its own: reads jobs, runs them, writes seconds.

Run as `python worker.py ours|vllm MODEL DTYPE`, by the Python of the side's environment. So it only
imports what that side needs. Jobs are lines of JSON; see jobs.py. Whatever libraries print goes to
standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

THREADS = 2
CACHE_BYTES = 4 * 2**30
STEP_TOKENS = 2_048
Run = Callable[[list[list[int]], int], float]
"""Generates so many tokens after each prompt, and returns the seconds."""


def ours(model: str, dtype: str, cache_bytes: int = CACHE_BYTES) -> tuple[Run, Callable[[], None]]:
    """Run prompts on our engine, and forget all cached states."""
    from relquery.model.load import load

    os.environ["OMP_NUM_THREADS"] = str(THREADS)
    loaded = load(model, dtype=dtype)
    return runs_of(loaded, cache_bytes // loaded.footprint().cached_token, STEP_TOKENS)


def runs_of(
    loaded: Any, slots: int, step_tokens: int, **limits: Any
) -> tuple[Run, Callable[[], None]]:
    """The same of a model that is loaded. limits: see EngineConfig."""
    import numpy as np

    from relquery.config import EngineConfig
    from relquery.engine.executor import RealClock
    from relquery.engine.loop import Loop
    from relquery.engine.requests.request import Request

    config = EngineConfig(cache_tokens=slots, max_num_batched_tokens=step_tokens, **limits)
    executor = loaded.executor(config, slots, lambda: 0.0, lean=False)
    engine = Loop(executor, config, RealClock())
    numbers = iter(range(1 << 60))

    def forget() -> None:
        nonlocal engine
        engine = Loop(executor, config, RealClock())

    def run(prompts: list[Any], tokens: int) -> float:
        given = [
            np.array(prompt, dtype=np.int32) if isinstance(prompt, list) else prompt
            for prompt in prompts
        ]
        begin = time.perf_counter()
        for prompt in given:
            engine.submit(Request(next(numbers), prompt, tokens))
        outputs = [request.output for request in engine.run()]
        seconds = time.perf_counter() - begin
        assert [len(output) for output in outputs] == [tokens] * len(prompts)
        return seconds

    run([[1]], 2)
    executor.reserve()  # vLLM writes to all of its cache when it starts, too
    forget()
    return run, forget


def vllm(model: str, dtype: str) -> tuple[Run, Callable[[], None]]:
    """The same on vLLM, with its engine in this process."""
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": str(CACHE_BYTES // 2**30),
        "VLLM_CPU_OMP_THREADS_BIND": "all",
        "OMP_NUM_THREADS": str(THREADS),
    }
    os.environ.update(settings)
    return _runs_of_vllm(
        model=model, dtype=dtype, enforce_eager=True, max_num_batched_tokens=STEP_TOKENS
    )


def vllm_on_gpu(model: str, dtype: str, step_tokens: int) -> tuple[Run, Callable[[], None]]:
    """The same on a GPU, with random weights and its CUDA graphs, beside other engines.

    model: a folder with a config.json.
    """
    return _runs_of_vllm(
        model=model,
        dtype=dtype,
        load_format="dummy",
        skip_tokenizer_init=True,
        gpu_memory_utilization=0.4,
        max_num_batched_tokens=step_tokens,
    )


def _runs_of_vllm(**settings: Any) -> tuple[Run, Callable[[], None]]:
    os.environ.update({"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"})
    from vllm import LLM, SamplingParams

    engine = LLM(
        max_model_len=8_192,
        enable_prefix_caching=True,
        max_num_seqs=256,
        disable_log_stats=True,
        **settings,
    )

    def run(prompts: list[list[int]], tokens: int) -> float:
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        how = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0, detokenize=False)
        begin = time.perf_counter()
        outputs = engine.generate(given, how, use_tqdm=False)
        seconds = time.perf_counter() - begin
        assert [len(output.outputs[0].token_ids) for output in outputs] == [tokens] * len(prompts)
        return seconds

    def forget() -> None:
        assert engine.reset_prefix_cache()

    return run, forget


def main() -> None:
    """Serve jobs from standard input until it ends."""
    side, model, dtype = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run, forget = {"ours": ours, "vllm": vllm}[side](model, dtype)

    def tell(found: Any) -> None:
        print(json.dumps(found), file=answers, flush=True)

    tell("ready")
    for line in sys.stdin:
        job = json.loads(line)
        forget()
        if job["before"]:
            run(job["before"], 1)
        tell(run(job["prompts"], job["tokens"]))


if __name__ == "__main__":
    main()
