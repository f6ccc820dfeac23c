"""Lessons as batches of token ids and weights."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from relquery.demo import model_path  # noqa: E402
from training.batches import batches, encode  # noqa: E402
from training.forced import block_sparse  # noqa: E402
from training.lessons.lessons import Lesson, Mix, lessons, needle_lessons  # noqa: E402
from training.tokenizer import PAD_ID  # noqa: E402

MIX = Mix((0, 7), 0.3, 0.3, 0.5, 6, (1, 1, 1, 1))


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(model_path())


def test_pieces_tokenised_apart_are_the_tokens_of_the_whole_text(tokenizer: Any) -> None:
    drawn = list(islice(lessons(Random(2), MIX), 200))
    for lesson, made in zip(drawn, encode(tokenizer, drawn), strict=True):
        assert made.tokens == tokenizer("".join(piece.text for piece in lesson))["input_ids"]
        assert not any(made.modules)


def test_batches_hold_every_lesson_once_and_no_more_tokens_than_allowed(tokenizer: Any) -> None:
    encoded = encode(tokenizer, list(islice(lessons(Random(3), MIX), 120)))
    made = list(batches(encoded, 2048, Random(0)))
    assert all(each.ids.numel() <= 2048 for each in made)
    assert all(each.ids.shape == each.weights.shape == each.modules.shape for each in made)
    rows = [row.tolist() for each in made for row in each.ids]
    kept = [[token for token in row if token != PAD_ID] for row in rows]
    assert sorted(kept) == sorted(each.tokens for each in encoded)


@pytest.mark.parametrize(
    "stream", [lessons(Random(4), MIX, apart=True), needle_lessons(Random(4), 24, apart=True)]
)
def test_modules_see_themselves_alone_and_are_what_a_prompt_with_modules_has(
    stream: Iterator[Lesson],
) -> None:
    for lesson in islice(stream, 200):
        numbers = [piece.module for piece in lesson if piece.module]
        assert numbers == list(range(1, len(numbers) + 1))
        assert not any(piece.learned for piece in lesson if piece.module)
        assert numbers
    modules = torch.tensor([[0, 1, 1, 0, 2, 0]])
    seen = block_sparse(modules)[0, 0] == 0
    assert seen.int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
        [0, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [1, 1, 1, 1, 1, 1],
    ]
