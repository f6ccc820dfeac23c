"""How often all names are found in hay, asked at once or in a tree, by relquery's own engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.open import load_backend
from relquery.ir.lower import lower
from relquery.ir.nodes import Bag, Seq, Text
from relquery.prompt import Prompt, Sampling
from training.lessons.needles import AFTER, BEFORE, names_in, needle_texts

TEXTS = 8  # each holds one name


def needle_shares(
    model: Path, hay_words: Sequence[int], cases: int, seed: int
) -> dict[int, dict[str, float]]:
    """For each number of hay words per text, the shares of cases with all names in order.

    flat: one question over all texts. tree: questions over two texts, then over two answers, ...
    """
    backend = load_backend(str(model))
    shares = {}
    for words in hay_words:
        rng = Random(f"{seed}:{words}")
        asked = [needle_texts(rng, TEXTS, words) for _ in range(cases)]
        expected = [names_in(" ".join(texts)) for texts in asked]
        flat, tree = _answers(backend, asked), _by_pairs(backend, asked)
        shares[words] = {
            "flat": _share_right(flat, expected),
            "tree": _share_right(tree, expected),
        }
    return shares


def _by_pairs(backend: EmbeddedBackend, cases: Sequence[Sequence[str]]) -> list[str]:
    """One answer per case; all cases have the same number of pieces, a power of two."""
    while len(cases[0]) > 1:
        pairs = [case[at : at + 2] for case in cases for at in range(0, len(case), 2)]
        answers, width = _answers(backend, pairs), len(cases[0]) // 2
        cases = [answers[at : at + width] for at in range(0, len(answers), width)]
    return [answer for (answer,) in cases]


def _answers(backend: EmbeddedBackend, asked: Sequence[Sequence[str]]) -> list[str]:
    answers = dict(backend.answer([_prompt(pieces) for pieces in asked], Sampling(max_tokens=64)))
    return [answers[index].text or "" for index in range(len(asked))]


def _prompt(pieces: Sequence[str]) -> Prompt:
    return lower(Seq((Text(BEFORE), Bag(tuple(map(Text, pieces)), "\n"), Text(AFTER))))


def _share_right(answers: Sequence[str], expected: Sequence[list[str]]) -> float:
    right = (names_in(answer) == names for answer, names in zip(answers, expected, strict=True))
    return sum(right) / len(expected)
