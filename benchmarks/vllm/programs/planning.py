"""Milliseconds that a policy takes to plan a step of vLLM, with a whole trace waiting. Prints JSON.

python -m benchmarks.vllm.programs.planning TRACE POLICY
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from relquery.demo.files import model_path
from relquery.traces.trace import load


def main(trace: str, policy: dict[str, Any]) -> dict[str, float]:
    """Mean and 99th percentile, and how many steps there were."""
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=str(model_path()),
        dtype="float32",
        block_size=32,
        max_model_len=2_048,
        max_num_seqs=32,
        scheduler_cls="relquery.vllm.RelServeScheduler",
        additional_config={"relquery": policy},
    )
    engine = llm.llm_engine
    for index, query in enumerate(load(Path(trace))):
        said = {"relquery": str(index), "relquery_rows": len(query.rows)}
        for row, (prompt, output) in enumerate(zip(query.prompts, query.outputs, strict=True)):
            params = SamplingParams(
                temperature=0, max_tokens=output, ignore_eos=True, extra_args=said
            )
            engine.add_request(f"{index}-{row}", prompt, params)
    scheduler = engine.engine_core.engine_core.scheduler
    seconds: list[float] = []
    while engine.has_unfinished_requests():
        engine.step()
        seconds.append(scheduler.seconds[-1])
    return {
        "mean": 1e3 * float(np.mean(seconds)),
        "p99": 1e3 * float(np.percentile(seconds, 99)),
        "steps": len(seconds),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
