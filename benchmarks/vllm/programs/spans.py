"""Time to the first token of prompts with spans: reused, and as plain text. Prints JSON.

python -m benchmarks.vllm.programs.spans NETWORK SPANS LENGTH ROUNDS
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from statistics import median
from typing import Any

from benchmarks.vllm.dense import log_probabilities
from relquery.vllm.spans.composite import Composite

BLOCK, QUESTION, LIKELIEST = 32, 40, 20


def main(network: str, count: int, length: int, rounds: int) -> dict[str, Any]:
    """Medians of seconds, and how far log-probabilities are from a dense mask."""
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=network,
        dtype="float32",
        block_size=BLOCK,
        max_model_len=2 * count * length,
        kv_transfer_config={"kv_connector": "SpanConnector", "kv_role": "kv_both"},
    )
    engine, draw = llm.llm_engine, random.Random(0)
    vocabulary = len(llm.get_tokenizer())

    def text(tokens: int) -> list[int]:
        return [draw.randrange(10, vocabulary) for _ in range(tokens)]

    def ask(name: str, prompt: list[int], said: Any) -> tuple[float, Any]:
        params = SamplingParams(
            temperature=0, max_tokens=1, logprobs=LIKELIEST, extra_args=dict(said)
        )
        begin = time.perf_counter()
        engine.add_request(name, {"prompt_token_ids": prompt}, params)
        while True:
            outputs = [each for each in engine.step() if each.finished]
            if outputs:
                return time.perf_counter() - begin, outputs[0]

    passages = [text(length) for _ in range(count)]
    for index, (prompt, said) in enumerate(Composite.of(passages, [1], block=BLOCK, pad=5).alone()):
        ask(f"span {index}", prompt, said)
    seconds: dict[str, list[float]] = {"spans": [], "plain": []}
    cached: dict[str, int] = {}
    apart = 0.0
    for number in range(rounds + 1):
        draw.shuffle(passages)
        composite = Composite.of(passages, text(QUESTION), block=BLOCK, pad=5)
        sides = [("spans", composite.said), ("plain", {})]
        for side, said in sides if number % 2 else sides[::-1]:
            taken, output = ask(f"{side} {number}", composite.prompt, said)
            cached[side] = output.num_cached_tokens
            if number:
                seconds[side].append(taken)
            if side == "spans" and number <= 1:
                apart = max(apart, _apart(network, composite, output.outputs[0].logprobs[0]))
    return {
        "seconds": {side: median(each) for side, each in seconds.items()},
        "cached": cached,
        "apart": apart,
    }


def _apart(network: str, composite: Composite, logprobs: Any) -> float:
    """The largest difference from one pass with an explicit block-diagonal mask."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        network, dtype=torch.float32, attn_implementation="eager"
    )
    expected = log_probabilities(model, composite)[0]
    return max(
        abs(float(expected[index]) - float(logprob.logprob)) for index, logprob in logprobs.items()
    )


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], *map(int, sys.argv[2:]))))
