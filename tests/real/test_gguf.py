"""Real GGUF files beside what `transformers` makes of them: numbers, tokens, and answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import relquery as rq
from relquery.model.native_model import open_folder, open_gguf
from relquery.model.text.tokenizer import read_tokenizer
from relquery.model.torch_runtime.compare import compare
from tests.real.conftest import needed
from tests.real.golden import COUNT, FILE, TOKENS
from tests.real.prompts import rows

TEXTS = [
    "Hello world",
    "  two  blanks\n\nand lines\t\ttabs",
    "don't I'LL we've 3.14 €5 naïve 日本語",
    "",
    "\n",
    "<|im_start|>user <bos> <eos>",
    "a\u0301e\u0301 😀\u200d ßÄ",
    "def f(x):\n    return x**2\n",
]


def file_of(name: str) -> Path:
    return needed(name) / "model.gguf"


@pytest.mark.parametrize("name", ["smollm2", pytest.param("gemma3", marks=pytest.mark.long)])
def test_a_file_holds_the_network_and_the_tokenizer(name: str) -> None:
    file = file_of(name)
    found = open_gguf(file, name, "float32")
    wanted = open_folder(file.parent, name, "float32", read_tokenizer(file.parent))
    assert found.decoder == wanted.decoder
    assert wanted.end <= found.end
    for each, weight in wanted._weights.items():
        assert np.array_equal(found._weights[each].floats(), weight.floats()), each
    # `transformers` forgets that SmolLM2 cuts digits from blanks before them.
    texts = [*TEXTS, *(" ".join(row.text.split()) for row in rows(100))]
    ours, theirs = found.tokenizer, wanted.tokenizer
    assert ours.encode(texts) == theirs.encode(texts)
    assert [ours.decode(each) for each in ours.encode(texts)] == texts
    assert [ours.encode_whole(each) for each in texts] == [theirs.encode_whole(e) for e in texts]
    assert ours.chat_template == theirs.chat_template


def test_a_file_answers_as_transformers_does() -> None:
    expected = json.loads(FILE.read_text(encoding="utf-8"))["float32"][::4]
    with rq.Engine(str(file_of("smollm2")), dtype="float32") as engine:
        prompts = [row.prompt for row in rows(COUNT)][::4]
        found = engine.submit(prompts, max_tokens=TOKENS).result()
    assert [list(each.tokens or ()) for each in found] == expected


@pytest.mark.long
def test_doctor_compares_a_file_with_transformers() -> None:
    found = list(compare(str(file_of("smollm2"))))
    assert all(each.off < 1e-5 and each.same == each.tokens for each in found)
