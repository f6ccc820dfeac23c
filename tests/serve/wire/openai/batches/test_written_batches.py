"""The files that `write_batch` writes are batches of this server, with OpenAI's client alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import openai
import pyarrow.parquet
import pytest

import relquery as rq
from relquery.prices.price import Price
from relquery.prices.table import PRICES
from tests.serve.wire.openai.batches.conftest import Run

MARKED = replace(PRICES["gpt-6-luna"], name="demo", minimum=16)
ANSWER = {"name": "answer", "schema": {"type": "string", "enum": ["Yes", "No"]}}


@pytest.mark.parametrize("waves", [1, 3])
@pytest.mark.parametrize("price", [None, MARKED])
def test_each_row_gets_its_answer(
    client: openai.OpenAI, run: Run, tmp_path: Path, waves: int, price: Price | None
) -> None:
    """With marked prefixes, too; each wave is sent when the one before it is answered."""
    reviews = pyarrow.parquet.read_table(rq.demo_table("movies")).slice(0, 30)
    template = rq.Template("Is the review positive?\n{fields}\n", system="You read reviews. " * 60)
    order = rq.reorder(reviews, prefix=template.prefix)
    batch = order.write_batch(
        tmp_path / "batch.jsonl",
        template,
        form="openai",
        model="demo",
        max_tokens=100,
        price=price,
        waves=waves,
        temperature=0,
        response_format={"type": "json_schema", "json_schema": ANSWER},
    )
    answered = []
    for path in batch.paths:
        done = run(path.read_text().splitlines())
        assert done.status == "completed"
        for kind in (done.output_file_id, done.error_file_id):
            if kind is not None:
                answered.append(tmp_path / f"{kind}.jsonl")
                answered[-1].write_bytes(client.files.content(kind).content)
    answers = order.read_answers(answered)
    assert set(answers.values.to_pylist()) <= {'"Yes"', '"No"'}
    assert len(answers.failed) == 0, answers
    assert ("prompt_cache_breakpoint" in batch.paths[0].read_text()) is (price is not None)
    assert (len(batch.waves) > 1) is (waves > 1)
