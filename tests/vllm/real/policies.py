"""Policies: the answers of vLLM's own scheduler, and nothing left open."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from typing import Any

from relquery.demo.files import model_path
from relquery.vllm.settings import VLLM_POLICIES
from tests.vllm.real.started import SMALL, prepare

QUERIES = (40, 3, 20, 2, 5, 30, 1)
"""Rows of each relQuery."""


def main() -> int:
    """Run vLLM as it is, and with each policy; print a line for each."""
    runs = [("", "sync"), *((each, "async") for each in VLLM_POLICIES), ("shortest", "sync")]
    expected: Any = None
    failed = 0
    for policy, mode in runs:
        command = [sys.executable, "-m", "tests.vllm.real.policies", "--one", policy, mode]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout.strip().splitlines()[-1])
        expected = found["answers"] if expected is None else expected
        is_same, is_empty = found["answers"] == expected, not found["left"]
        failed += not (is_same and is_empty)
        print(
            f"{policy or 'as it is':10} {mode:5} {len(found['answers'])} answers in "
            f"{found['seconds']:.2f} s"
            f"{'' if is_same else ', OTHER ANSWERS'}{'' if is_empty else ', REQUESTS LEFT'}"
            + (f", planning {found['planning']:.2f} ms a step" if policy else ""),
            flush=True,
        )
    return failed


def one(policy: str, is_async: bool) -> dict[str, Any]:
    """Answer all requests with one policy. is_async: whether vLLM plans while a step runs."""
    prepare()
    from vllm import LLM, SamplingParams

    from relquery.vllm.contract import check_code

    check_code()
    ours: dict[str, Any] = {}
    if policy:
        ours["scheduler_cls"] = "relquery.vllm.RelServeScheduler"
        ours["additional_config"] = {"relquery": {"policy": policy}}
    engine = LLM(model=str(model_path()), async_scheduling=is_async, **SMALL, **ours)
    draw = random.Random(0)
    prompts, sampling = [], []
    for number, rows in enumerate(QUERIES):
        head = " ".join(draw.choice(WORDS) for _ in range(12))
        for _ in range(rows):
            own = (draw.choice(WORDS) for _ in range(draw.randint(3, 12)))
            prompts.append(f"{head} {' '.join(own)}")
            said = {"relquery": f"q{number}", "relquery_rows": rows}
            sampling.append(
                SamplingParams(temperature=0, max_tokens=draw.randint(2, 20), extra_args=said)
            )
    engine.generate(prompts[:1], sampling[:1], use_tqdm=False)
    begin = time.perf_counter()
    outputs = engine.generate(prompts, sampling, use_tqdm=False)
    seconds = time.perf_counter() - begin
    found: dict[str, Any] = {
        "answers": [list(output.outputs[0].token_ids) for output in outputs],
        "seconds": seconds,
        "left": 0,
    }
    if policy:
        scheduler = engine.llm_engine.engine_core.engine_core.scheduler
        found["left"] = len(scheduler._mirror.by_id) + len(scheduler._mirror.open.relqueries)
        found["planning"] = 1e3 * sum(scheduler.seconds) / len(scheduler.seconds)
    return found


WORDS = [f"word{number}" for number in range(200)]

if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(sys.argv[2], sys.argv[3] == "async")))
    else:
        sys.exit(main())
