"""SmolLM2-135M answers as `transformers` does (the golden file), however it is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import relquery as rq
from relquery.config import EngineConfig
from relquery.prompt import Answer, Finish, Prompt, Reuse, Role, Span
from tests.real import golden
from tests.real.conftest import needed
from tests.real.golden import COUNT, FILE, LABELS, SCHEMA, SPANS, TOKENS
from tests.real.prompts import Row, rows
from tests.serve.conftest import started

EXPECTED: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def asked() -> list[Row]:
    found = rows(COUNT)
    assert [[row.source, row.row] for row in found] == EXPECTED["rows"]
    return found


@pytest.fixture(scope="module")
def engine() -> Iterator[rq.Engine]:
    with rq.Engine(str(needed("smollm2")), dtype="float32") as opened:
        yield opened


def given(answers: list[Answer]) -> list[list[int]]:
    """The tokens of answers, which may be cut off."""
    assert all(answer.finish in (Finish.STOP, Finish.LENGTH) for answer in answers)
    return [list(answer.tokens or ()) for answer in answers]


def spans(texts: list[str], begins: Sequence[int | None] = (None,) * 4) -> Prompt:
    """A prompt of the texts of `spans_of`. begins: the position of each one's first token."""
    prefix, alone = Reuse.PREFIX, Reuse.INDEPENDENT
    reuse = (prefix, alone, alone, prefix)
    return tuple(
        Span(text, Role.NONE, kind, position=begin)
        for text, kind, begin in zip(texts, reuse, begins, strict=True)
    )


def test_it_runs_in_our_runtime(engine: rq.Engine) -> None:
    assert engine.runs_in == "relquery's runtime"


def test_rows_are_answered_alike_alone_and_in_a_batch_cold_and_warm(
    engine: rq.Engine, asked: list[Row]
) -> None:
    texts = [row.prompt for row in asked]
    alone = [engine.submit([text], max_tokens=TOKENS).result()[0] for text in texts[::6]]
    cold = engine.submit(texts, max_tokens=TOKENS).result()
    warm = engine.submit(texts, max_tokens=TOKENS).result()
    assert given(alone) == EXPECTED["float32"][::6]
    assert given(cold) == given(warm) == EXPECTED["float32"]
    block = EngineConfig().block_size
    assert all(
        answer.cached_tokens >= (answer.prompt_tokens - 1) // block * block for answer in warm
    )


def test_spans_attend_to_themselves_alone(engine: rq.Engine) -> None:
    prompts = [spans(golden.spans_of(number)) for number in range(SPANS)]
    for _ in range(2):  # the second time the spans' states are in the cache
        found = engine.submit(prompts, max_tokens=TOKENS).result()
        assert given(found) == EXPECTED["spans"]


def test_labels_have_the_probabilities_of_the_network(engine: rq.Engine, asked: list[Row]) -> None:
    reviews = [row.prompt for row in asked[: COUNT // 4]]
    for scores, expected in zip(engine.score(reviews, LABELS), EXPECTED["labels"], strict=True):
        found = [scores.log_probabilities[label] for label in LABELS]
        assert found == pytest.approx(expected, abs=1e-3)


def test_a_schema_leaves_the_network_its_choice(engine: rq.Engine, asked: list[Row]) -> None:
    reviews = [row.prompt for row in asked[: COUNT // 4]]
    found = engine.submit(reviews, max_tokens=20, schema=SCHEMA).result()
    assert [answer.text for answer in found] == EXPECTED["schema"]


def test_bfloat16_is_as_near_as_two_stock_implementations(asked: list[Row]) -> None:
    with rq.Engine(str(needed("smollm2")), dtype="bfloat16") as rounded:
        assert rounded.runs_in == "relquery's runtime"
        found = given(rounded.submit([row.prompt for row in asked], max_tokens=TOKENS).result())
    expected = EXPECTED["bfloat16"]
    nearest = max(golden.same(found, expected[attention]) for attention in ("eager", "sdpa"))
    assert nearest >= expected["same"]


def test_ten_streams_at_once(asked: list[Row]) -> None:
    def stream(url: str, row: Row) -> str:
        body = {
            "model": str(needed("smollm2")),
            "messages": [{"role": "user", "content": row.prompt}],
            "max_tokens": TOKENS,
            "temperature": 0,
            "stream": True,
        }
        text = ""
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60) as events:
            assert events.status_code == 200
            for line in events.iter_lines():
                if line.startswith("data: {"):
                    for choice in json.loads(line.removeprefix("data: "))["choices"]:
                        text += choice["delta"].get("content") or ""
        return text

    some = asked[1:11]
    with started(str(needed("smollm2"))) as server, ThreadPoolExecutor(len(some)) as pool:
        found = list(pool.map(lambda row: stream(server.url, row), some))
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(needed("smollm2"))
    assert found == [tokenizer.decode(ids) for ids in EXPECTED["float32"][1:11]]
