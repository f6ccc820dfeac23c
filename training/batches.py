"""Lessons as padded batches of token ids, with the weight of each token in the loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from training.lessons.lessons import Lesson
from training.tokenizer import PAD_ID

BATCH_TOKENS = 3072  # in training
Encoded = tuple[list[int], list[float]]  # token ids, and how much each counts in the loss


def encode(tokenizer: PreTrainedTokenizerBase, drawn: Sequence[Lesson]) -> list[Encoded]:
    """Token ids and weights of lessons; pieces are joined where no token could span them.

    Context has weight zero. The tokens of an answer share the square root of its length, so that
    a long copy counts more than a Yes, but does not drown it out.
    """
    pieces = [text for lesson in drawn for text, _ in lesson]
    ids = iter(
        tokenizer(pieces, add_special_tokens=False, return_attention_mask=False)["input_ids"]
    )
    encoded = []
    for lesson in drawn:
        tokens: list[int] = []
        weights: list[float] = []
        for _, learn in lesson:
            piece = next(ids)
            tokens += piece
            weights += [len(piece) ** -0.5 if learn else 0.0] * len(piece)
        encoded.append((tokens, weights))
    return encoded


def batches(
    encoded: Sequence[Encoded], most_tokens: int, rng: Random
) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids and weights (sequences, longest) of at most `most_tokens`, padded, in random order.

    Lessons of similar length are grouped, so batches have little padding.
    """
    ordered = sorted(encoded, key=lambda pair: len(pair[0]))
    cut: list[list[Encoded]] = [[]]
    for pair in ordered:
        if len(cut[-1]) >= most_tokens // len(pair[0]):
            cut.append([])
        cut[-1].append(pair)
    rng.shuffle(cut)
    for group in cut:
        width = max(len(tokens) for tokens, _ in group)
        ids = [tokens + [PAD_ID] * (width - len(tokens)) for tokens, _ in group]
        weights = [row + [0.0] * (width - len(row)) for _, row in group]
        yield torch.tensor(ids), torch.tensor(weights)
