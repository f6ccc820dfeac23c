"""Lessons as padded batches of token ids, with each token's weight in the loss and its module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from training.lessons.lessons import Lesson
from training.tokenizer import PAD_ID

BATCH_TOKENS = 3072  # in training
Number = TypeVar("Number", int, float)


class Encoded(NamedTuple):
    """Token ids of a lesson, how much each counts in the loss, and its module's number or 0."""

    tokens: list[int]
    weights: list[float]
    modules: list[int]


class Batch(NamedTuple):
    """Lessons as Encoded, each (lessons, longest), padded."""

    ids: Tensor
    weights: Tensor
    modules: Tensor


def encode(tokenizer: PreTrainedTokenizerBase, drawn: Sequence[Lesson]) -> list[Encoded]:
    """Token ids and weights of lessons; pieces are joined where no token could span them.

    Context has weight zero. The tokens of an answer share the square root of its length, so that
    a long copy counts more than a Yes, but does not drown it out.
    """
    pieces = [piece.text for lesson in drawn for piece in lesson]
    ids = iter(
        tokenizer(pieces, add_special_tokens=False, return_attention_mask=False)["input_ids"]
    )
    encoded = []
    for lesson in drawn:
        made = Encoded([], [], [])
        for piece in lesson:
            tokens = next(ids)
            made.tokens.extend(tokens)
            made.weights.extend([len(tokens) ** -0.5 if piece.learned else 0.0] * len(tokens))
            made.modules.extend([piece.module] * len(tokens))
        encoded.append(made)
    return encoded


def batches(encoded: Sequence[Encoded], most_tokens: int, rng: Random) -> Iterator[Batch]:
    """Batches of at most `most_tokens`, in random order.

    Lessons of similar length are grouped, so batches have little padding.
    """
    ordered = sorted(encoded, key=lambda each: len(each.tokens))
    cut: list[list[Encoded]] = [[]]
    for each in ordered:
        if len(cut[-1]) >= most_tokens // len(each.tokens):
            cut.append([])
        cut[-1].append(each)
    rng.shuffle(cut)
    for group in cut:
        width = max(len(each.tokens) for each in group)
        yield Batch(
            torch.tensor([_filled(each.tokens, width, PAD_ID) for each in group]),
            torch.tensor([_filled(each.weights, width, 0.0) for each in group]),
            torch.tensor([_filled(each.modules, width, 0) for each in group]),
        )


def _filled(row: list[Number], width: int, value: Number) -> list[Number]:
    return row + [value] * (width - len(row))
