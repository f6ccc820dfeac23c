"""Lessons as batches of token ids and weights."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from relquery.demo import model_path  # noqa: E402
from training.batches import batches, encode  # noqa: E402
from training.lessons.lessons import END, Mix, lessons  # noqa: E402
from training.tokenizer import PAD_ID  # noqa: E402

MIX = Mix((0, 7), 0.3, 0.3, 0.5, 6, (1, 1, 1, 1))


def test_pieces_tokenised_apart_are_the_tokens_of_the_whole_text() -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_path())
    drawn = list(islice(lessons(Random(2), MIX), 200))
    for lesson, (tokens, _) in zip(drawn, encode(tokenizer, drawn), strict=True):
        assert tokens == tokenizer("".join(text for text, _ in lesson))["input_ids"]


def test_the_tokens_of_an_answer_share_the_root_of_its_length_and_context_weighs_nothing() -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_path())
    lesson = [("<|user|>Is it?<|assistant|>", False), ("The Silver Harbor is it" + END, True)]
    [(tokens, weights)] = encode(tokenizer, [lesson])
    learned = [weight for weight in weights if weight]
    assert weights[: len(tokens) - len(learned)] == [0.0] * (len(tokens) - len(learned))
    assert sum(learned) == pytest.approx(len(learned) ** 0.5)


def test_batches_hold_every_lesson_once_and_no_more_tokens_than_allowed() -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_path())
    encoded = encode(tokenizer, list(islice(lessons(Random(3), MIX), 120)))
    made = list(batches(encoded, 2048, Random(0)))
    assert all(ids.numel() <= 2048 and ids.shape == weights.shape for ids, weights in made)
    kept = [[token for token in row.tolist() if token != PAD_ID] for ids, _ in made for row in ids]
    assert sorted(kept) == sorted(tokens for tokens, _ in encoded)
