"""One side of the comparison, in a process of its own: reads jobs, runs them, writes what came.

Run as `python worker.py ENGINE MODEL DTYPE CACHE_BYTES`, by the Python of the engine's environment.
So it only imports what that engine needs. Jobs are lines of JSON; see jobs.py. An answer is the
seconds, and the tokens after each prompt. Whatever libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any, Protocol

THREADS = 2
STEP_TOKENS = 2_048
SEATS = 256
EXACT = "float32"
"""The number format in which OpenVINO rounds nothing; in any other it takes what is fastest."""
AT_ONCE = 8
"""Prompts that begin alike and that OpenVINO is given at a time: each finds only what was cached
when it came. With 1, 2, 4 or all of 64 it takes longer."""
PASSAGE = 64
"""Tokens of the least chunk that llama.cpp reuses at another position."""
OPTIONS = ("--no-kv-unified", "--no-repack", "--cache-ram", "0")
"""Of llama.cpp's server."""
Prompts = list[list[int]]
Apart = Sequence[tuple[int, int]]
NONE: Apart = ()


class Run(Protocol):
    """Generates so many tokens after each prompt: the seconds, and the tokens.

    apart, few: see Job in jobs.py.
    """

    def __call__(
        self, prompts: Prompts, tokens: int, apart: Apart = NONE, few: bool = False
    ) -> tuple[float, Prompts]: ...


Side = tuple[Run, Callable[[], None]]
"""What runs prompts, and what forgets all cached states."""


def ours(model: str, dtype: str, cache_bytes: int) -> Side:
    """Run prompts on our engine, and forget all cached states."""
    from relquery.model.load import load

    os.environ["OMP_NUM_THREADS"] = str(THREADS)
    loaded = load(model, dtype=dtype)
    return runs_of(loaded, cache_bytes // loaded.footprint().cached_token, STEP_TOKENS)


def runs_of(loaded: Any, slots: int, step_tokens: int, **limits: Any) -> Side:
    """The same of a model that is loaded. limits: see EngineConfig. Prompts may be chains, too."""
    import numpy as np

    from relquery.config import EngineConfig
    from relquery.engine.executor import RealClock
    from relquery.engine.loop import Loop
    from relquery.engine.requests.pieces import Chain
    from relquery.engine.requests.request import Request

    config = EngineConfig(cache_tokens=slots, max_num_batched_tokens=step_tokens, **limits)
    executor = loaded.executor(config, slots, lambda: 0.0)
    engine = Loop(executor, config, RealClock())
    numbers = count()

    def forget() -> None:
        nonlocal engine
        engine = Loop(executor, config, RealClock())

    def chain(prompt: Any, apart: Apart) -> Chain:
        if isinstance(prompt, Chain):
            return prompt
        whole, end = np.array(prompt, dtype=np.int32), 0
        parts: list[Any] = []
        for begin, stop in apart:
            parts += [whole[end:begin], Chain((whole[begin:stop],))]
            end = stop
        return Chain((*parts, whole[end:]))

    def run(
        prompts: list[Any], tokens: int, apart: Apart = NONE, few: bool = False
    ) -> tuple[float, Prompts]:
        del few
        chains = [chain(prompt, apart) for prompt in prompts]
        begin = time.perf_counter()
        requests = [Request(next(numbers), each, tokens) for each in chains]
        for request in requests:
            engine.submit(request)
        for _ in engine.run():
            pass
        seconds = time.perf_counter() - begin
        return seconds, [list(request.output) for request in requests]

    run([[1]], 2)
    executor.reserve()  # vLLM writes to all of its cache when it starts, too
    forget()
    return run, forget


def vllm(model: str, dtype: str, cache_bytes: int) -> Side:
    """The same on vLLM, with its engine in this process."""
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": str(cache_bytes // 2**30),
        "VLLM_CPU_OMP_THREADS_BIND": "all",
        "OMP_NUM_THREADS": str(THREADS),
    }
    os.environ.update(settings)
    return _runs_of_vllm(
        model=model, dtype=dtype, enforce_eager=True, max_num_batched_tokens=STEP_TOKENS
    )


def vllm_on_gpu(model: str, dtype: str, step_tokens: int) -> Side:
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


def _runs_of_vllm(**settings: Any) -> Side:
    os.environ.update({"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"})
    from vllm import LLM, SamplingParams

    engine = LLM(
        max_model_len=8_192,
        enable_prefix_caching=True,
        max_num_seqs=SEATS,
        disable_log_stats=True,
        **settings,
    )

    def run(
        prompts: Prompts, tokens: int, apart: Apart = NONE, few: bool = False
    ) -> tuple[float, Prompts]:
        del apart, few
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        how = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0, detokenize=False)
        begin = time.perf_counter()
        outputs = engine.generate(given, how, use_tqdm=False)
        seconds = time.perf_counter() - begin
        return seconds, [list(output.outputs[0].token_ids) for output in outputs]

    def forget() -> None:
        assert engine.reset_prefix_cache()

    return run, forget


def openvino(model: str, dtype: str, cache_bytes: int) -> Side:
    """The same on OpenVINO GenAI, with its engine in this process."""
    import numpy as np
    import openvino as ov
    import openvino_genai as genai

    scheduling = genai.SchedulerConfig()
    scheduling.cache_size = cache_bytes // 2**30
    scheduling.max_num_batched_tokens = STEP_TOKENS
    scheduling.max_num_seqs = SEATS
    scheduling.enable_prefix_caching = True
    scheduling.dynamic_split_fuse = True
    exact = {
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    }
    settings = {"INFERENCE_NUM_THREADS": THREADS, **(exact if dtype == EXACT else {})}
    engine = genai.ContinuousBatchingPipeline(model, scheduling, "CPU", settings)
    salted, forget = _salts()

    def run(
        prompts: Prompts, tokens: int, apart: Apart = NONE, few: bool = False
    ) -> tuple[float, Prompts]:
        del apart
        how = genai.GenerationConfig(max_new_tokens=tokens, ignore_eos=True, do_sample=False)
        waiting = [ov.Tensor(np.array([each], np.int64)) for each in salted(prompts)]
        given: list[Any] = []
        under_way: list[Any] = []
        running = genai.GenerationStatus.RUNNING
        begin = time.perf_counter()
        while waiting or under_way:
            while waiting and len(under_way) < (AT_ONCE if few else len(prompts)):
                under_way.append(engine.add_request(len(given), waiting.pop(0), how))
                given.append(under_way[-1])
            engine.step()
            under_way = [each for each in under_way if each.get_status() == running]
        seconds = time.perf_counter() - begin
        return seconds, [list(each.read_all()[0].generated_ids) for each in given]

    run([[1]], 2)
    return run, forget


def llama_cpp(model: str, dtype: str, cache_bytes: int) -> Side:
    """The same on llama.cpp's server, which is beside this Python and takes as many slots as a job
    has requests under way."""
    del dtype, cache_bytes
    program = Path(sys.prefix) / "build" / "bin" / "llama-server"
    salted, forget = _salts()
    server = LlamaServer(str(program), model)

    def run(
        prompts: Prompts, tokens: int, apart: Apart = NONE, few: bool = False
    ) -> tuple[float, Prompts]:
        slots = 1 if few else len(prompts)
        given = salted(prompts)
        server.fit(slots, max(map(len, given)) + tokens)
        reused = {"n_cache_reuse": PASSAGE} if apart else {}
        with ThreadPoolExecutor(slots) as pool:
            begin = time.perf_counter()
            outputs = list(pool.map(lambda each: server.complete(each, tokens, reused), given))
            return time.perf_counter() - begin, outputs

    run([[1]], 2)
    return run, forget


class LlamaServer:
    """A server that is started again where a job needs another number of slots or more room."""

    def __init__(self, program: str, model: str) -> None:
        self._command = [program, "-m", model, "-t", str(THREADS), "-tb", str(THREADS), *OPTIONS]
        self._process: subprocess.Popen[bytes] | None = None
        self._slots = self._room = self._port = 0

    def fit(self, slots: int, room: int) -> None:
        """Have so many slots, each with room for so many tokens."""
        if slots == self._slots and room <= self._room:
            return
        self.stop()
        self._slots, self._room = slots, -(-room // 256) * 256
        self._port = _free_port()
        given = ["--port", str(self._port), "-np", str(slots), "-c", str(slots * self._room)]
        self._process = subprocess.Popen([*self._command, *given], stdout=2)
        while self._ask("GET", "/health") is None:
            if self._process.poll() is not None:
                raise SystemExit("llama-server ended")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def complete(self, prompt: list[int], tokens: int, more: Mapping[str, int]) -> list[int]:
        """The tokens after a prompt."""
        how = {
            "n_predict": tokens, "ignore_eos": True, "cache_prompt": True, "return_tokens": True,
            "samplers": ["top_k"], "top_k": 1, **more,
        }  # fmt: skip
        answer = self._ask("POST", "/completion", {"prompt": prompt, **how})
        assert answer is not None
        found: list[int] = answer["tokens"]
        return found

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """What it answers; None while it does not serve."""
        connection = HTTPConnection("127.0.0.1", self._port)
        try:
            head = {"Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body), head)
            answer = connection.getresponse()
            reply = answer.read()
            return json.loads(reply) if answer.status == 200 else None
        except ConnectionError:
            return None
        finally:
            connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _salts() -> tuple[Callable[[Prompts], Prompts], Callable[[], None]]:
    """Prompts for an engine that cannot be told to forget, and what is called in its place.

    From the second call on, another token is before the prompts, so none begins as an earlier one.
    """
    number = -1

    def forget() -> None:
        nonlocal number
        number += 1

    def salted(prompts: Prompts) -> Prompts:
        return [[100 + number, *prompt] for prompt in prompts] if number > 0 else prompts

    return salted, forget


ENGINES: dict[str, Callable[[str, str, int], Side]] = {
    "ours": ours,
    "vllm": vllm,
    "openvino": openvino,
    "llama.cpp": llama_cpp,
}


def main() -> None:
    """Serve jobs from standard input until it ends."""
    engine, model, dtype, cache_bytes = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run, forget = ENGINES[engine](model, dtype, int(cache_bytes))

    def tell(found: Any) -> None:
        print(json.dumps(found), file=answers, flush=True)

    tell("ready")
    for line in sys.stdin:
        job = json.loads(line)
        forget()
        apart, few = job["apart"], job["few"]
        if job["before"]:
            run(job["before"], 1, apart, few)
        seconds, outputs = run(job["prompts"], job["tokens"], apart, few)
        lengths = [len(output) for output in outputs]
        assert lengths, "a job has prompts"
        assert lengths == [job["tokens"]] * len(job["prompts"]), lengths
        tell([seconds, outputs])


if __name__ == "__main__":
    main()
