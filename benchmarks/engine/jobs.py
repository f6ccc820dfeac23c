"""What both sides compute: prompts as token ids, and how many tokens follow them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.engine.sizes import Sizes

Prompts = list[list[int]]


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement, with an empty cache at its beginning.

    before: prompts that are computed first, and not timed. prompts: those that are timed, with
    `tokens` generated after each.
    """

    prompts: Prompts
    tokens: int
    before: Prompts = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"prompts": self.prompts, "tokens": self.tokens, "before": self.before}


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


def measures(sizes: Sizes, seed: int) -> list[Measure]:
    """Everything that is measured on random tokens."""
    rng = np.random.default_rng(seed)
    vocabulary = sizes.vocabulary
    count, length = sizes.prefill
    made = [Measure("prefill", Job(draw(rng, count, length, vocabulary), 1), count=count * length)]
    for batch in sizes.batches:
        prompts = draw(rng, batch, sizes.start, vocabulary)
        others = draw(rng, batch, sizes.start, vocabulary)
        made.append(
            Measure(
                f"decode_{batch}",
                Job(prompts, sizes.steps + 1),
                Job(others, 1),
                batch * sizes.steps,
            )
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
