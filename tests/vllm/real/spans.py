"""Spans by the connector: log-probabilities beside a block-diagonal mask, dense and in float32."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from itertools import count
from typing import Any

from benchmarks.vllm.dense import log_probabilities
from relquery.demo.files import model_path
from relquery.vllm.spans.composite import Composite
from tests.vllm.real.started import SMALL, network, prepare

CONNECTOR = {"kv_connector": "SpanConnector", "kv_role": "kv_both"}
Asked = tuple[str, list[int], Mapping[str, Any], int]
TRIALS, ANSWER, TOLERANCE = 12, 6, 1e-4


def run(engine: Any, requests: list[Asked]) -> dict[str, Any]:
    """The outputs by name. requests: name, prompt, what it says, and the length of its answer."""
    from vllm import SamplingParams

    for name, prompt, said, length in requests:
        params = SamplingParams(
            temperature=0, max_tokens=length, ignore_eos=True, logprobs=5, extra_args=dict(said)
        )
        engine.add_request(name, {"prompt_token_ids": prompt}, params)
    found: dict[str, Any] = {}
    while engine.has_unfinished_requests():
        found |= {each.request_id: each for each in engine.step() if each.finished}
    return found


def main() -> int:
    """Print what is found; how many trials were wrong."""
    prepare()
    from vllm import LLM

    llm = LLM(
        model=str(model_path()),
        kv_transfer_config=CONNECTOR,
        scheduler_cls="relquery.vllm.RelServeScheduler",
        additional_config={"relquery": {"policy": "shortest"}},
        **SMALL,
    )
    engine, model, draw, numbers = llm.llm_engine, network(), random.Random(0), count()
    vocabulary = len(llm.get_tokenizer())

    def text(most: int) -> list[int]:
        return [draw.randrange(10, vocabulary) for _ in range(draw.randint(1, most))]

    texts, wrong, worst = [text(90) for _ in range(6)], 0, 0.0
    for trial in range(TRIALS):
        spans = draw.choices(texts, k=draw.randint(1, 6))
        composite = Composite.of(spans, text(40), block=SMALL["block_size"], pad=5)
        alone: list[Asked] = [(f"s{next(numbers)}", *each, 1) for each in composite.alone()]
        whole = (f"c{trial}", composite.prompt, composite.said, ANSWER)
        plain: Asked = (f"p{trial}", composite.prompt, {}, ANSWER)
        if trial % 2:  # all at once: it waits for its spans
            found = run(engine, [*alone, whole, plain])
        else:
            found = run(engine, alone) | run(engine, [whole]) | run(engine, [plain])
        given = found[f"c{trial}"].outputs[0]
        expected = log_probabilities(model, composite, given.token_ids)
        apart = max(
            abs(float(expected[at][token]) - one.logprob)
            for at, listed in enumerate(given.logprobs)
            for token, one in listed.items()
        )
        worst = max(worst, apart)
        reused = found[f"c{trial}"].num_cached_tokens == sum(map(len, composite.spans))
        unspanned = Composite((), tuple(composite.prompt))
        other = found[f"p{trial}"].outputs[0]
        drawn = log_probabilities(model, unspanned, other.token_ids).argmax(-1).tolist()
        is_plain = drawn[:-1] == other.token_ids
        wrong += apart > TOLERANCE or not reused or not is_plain
    print(f"{TRIALS} prompts with spans, log-probabilities at most {worst:.1e} from a dense mask")
    missing = Composite.of([text(50)], (7, 8), block=SMALL["block_size"], pad=5)
    ended = run(engine, [("missing", missing.prompt, missing.said, 3)])["missing"].outputs[0]
    print(f"a prompt whose span is missing ends with: {ended.finish_reason}")
    return wrong + int(ended.finish_reason != "error")


if __name__ == "__main__":
    sys.exit(main())
