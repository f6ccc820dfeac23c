"""What all sides compute: random tokens, the filter of paper 000, and prompts with passages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.cpu_peers.sizes import Sizes
from benchmarks.engine.jobs import Job, Measure, Prompts, draw, prefill_and_decodes
from benchmarks.engine.network import filter_prompts
from benchmarks.sql.queries import FILE

RAG = "passages"
TEXTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time there was a king who",
    "The three primary colours are red,",
    "To open a file in Python, one calls",
    "Dear Sir or Madam, I am writing to",
)
"""Prompts whose answers show that all sides compute the same network."""
ANSWER = 8
"""Tokens of their answers."""


def random_measures(sizes: Sizes, vocabulary: int, seed: int) -> list[Measure]:
    """All that is measured on random tokens."""
    rng = np.random.default_rng(seed)
    made = prefill_and_decodes(
        rng, vocabulary, sizes.prefill, sizes.batches, sizes.start, sizes.steps
    )
    return [*made, passages(sizes, vocabulary, rng)]


def passages(sizes: Sizes, vocabulary: int, rng: np.random.Generator) -> Measure:
    """Prompts of passages in changing order, after a system text that all share and before a
    question; each passage is cached, from a prompt that was computed before."""
    (system,) = draw(rng, 1, sizes.system, vocabulary)
    texts = draw(rng, sizes.passages, sizes.passage, vocabulary)
    first, *questions = draw(rng, 1 + sizes.asked, sizes.question, vocabulary)

    def prompt(order: Sequence[int], question: list[int]) -> list[int]:
        return [*system, *(token for text in order for token in texts[text]), *question]

    orders = [rng.permutation(sizes.passages).tolist() for _ in questions]
    begins = range(sizes.system, len(prompt(orders[0], [])), sizes.passage)
    job = Job(
        [prompt(*each) for each in zip(orders, questions, strict=True)],
        1,
        [prompt(range(sizes.passages), first)],
        tuple((begin, begin + sizes.passage) for begin in begins),
        few=True,
    )
    return Measure(RAG, job)


def filter_jobs(tokenizer: Path, data: Path, rows: int) -> dict[str, Job]:
    """The filter's prompts over Movies by order, with an answer of one token; {} without the
    table. tokenizer: the folder that has it."""
    if not (data / FILE).exists():
        return {}
    found = filter_prompts(tokenizer, data, rows)
    return {order: Job(prompts, 1, few=True) for order, prompts in found.items()}


def same_answers(ours: Prompts, theirs: Prompts) -> int:
    """How many answers are the same to the last token."""
    return sum(own == other for own, other in zip(ours, theirs, strict=True))
