"""What both sides compute: prompts as token ids, and how many tokens follow them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.engine.sizes import Sizes

Prompts = list[list[int]]


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement, with an empty cache at its beginning.

    before: prompts that are computed first, and not timed. prompts: those that are timed, with
    `tokens` generated after each. apart: where in each prompt passages begin and end, which attend
    to themselves alone on our side. few: whether prompts begin alike, so that engines which share
    nothing among requests under way are given few at a time.
    """

    prompts: Prompts
    tokens: int
    before: Prompts = field(default_factory=list)
    apart: tuple[tuple[int, int], ...] = ()
    few: bool = False


@dataclass(frozen=True, slots=True)
class Measure:
    """Seconds of a job, less those of a shorter one, and the tokens that they produced.

    less: the job that computes the same prompts and one token. count: tokens between both; 0 if
    the seconds themselves are the figure.
    """

    name: str
    job: Job
    less: Job | None = None
    count: int = 0


def draw(rng: np.random.Generator, count: int, length: int, vocabulary: int) -> Prompts:
    """Prompts of random tokens."""
    drawn: Prompts = rng.integers(10, vocabulary - 10, (count, length)).tolist()
    return drawn


def prefill_and_decodes(
    rng: np.random.Generator,
    vocabulary: int,
    prefill: tuple[int, int],
    batches: Sequence[int],
    start: int,
    steps: int,
) -> list[Measure]:
    """Prompts alone, and answers of several numbers of requests; see Sizes."""
    count, length = prefill
    made = [Measure("prefill", Job(draw(rng, count, length, vocabulary), 1), count=count * length)]
    for batch in batches:
        prompts = draw(rng, batch, start, vocabulary)
        others = draw(rng, batch, start, vocabulary)
        jobs = Job(prompts, steps + 1), Job(others, 1)
        made.append(Measure(f"decode_{batch}", *jobs, batch * steps))
    return made


def measures(sizes: Sizes, seed: int) -> list[Measure]:
    """Everything that is measured on random tokens."""
    rng = np.random.default_rng(seed)
    vocabulary = sizes.vocabulary
    made = prefill_and_decodes(
        rng, vocabulary, sizes.prefill, sizes.batches, sizes.start, sizes.steps
    )
    batch = sizes.batches[-1]
    (context,) = draw(rng, 1, sizes.shared, vocabulary)
    prompts = [[*context, *own] for own in draw(rng, batch, sizes.own, vocabulary)]
    warm = [[*context, 1]]
    made.append(
        Measure(
            f"decode_{batch}_shared",
            Job(prompts, sizes.steps + 1, warm),
            Job(prompts, 1, warm),
            batch * sizes.steps,
        )
    )
    (hot,) = draw(rng, 1, sizes.hot, vocabulary)
    (new,) = draw(rng, 1, sizes.new, vocabulary)
    made.append(Measure("hot", Job([[*hot, *new]], 1, [hot])))
    return made
