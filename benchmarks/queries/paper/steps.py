"""What the steps of an engine compute, and what a token of each kind costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from benchmarks.turns import Turn
from relquery.engine.cost.fit import non_negative
from relquery.engine.loop import Loop
from relquery.engine.request.request import Request


class Step(NamedTuple):
    """A step: prompt tokens that it computed, answer tokens that it computed, and its seconds."""

    prompt_tokens: int
    decoded: int
    seconds: float


class Costs(NamedTuple):
    """Seconds of a prompt token and of an answer token."""

    prompt: float
    decoded: float

    def seconds(self, prompt_tokens: int, decoded: int) -> float:
        """Of so many tokens."""
        return self.prompt * prompt_tokens + self.decoded * decoded


@contextmanager
def recorded(engine: Loop, turn: Turn, steps: list[Step]) -> Iterator[None]:
    """A context in which the steps of an engine are added to a list."""
    step = engine.step

    def recorded_step() -> list[Request]:
        queries = list(engine.relqueries.values())
        decoded = sum(request.decoding for request in engine.running)
        before, begin = sum(query.computed_prompts for query in queries), turn.now()
        finished = step()
        computed = sum(query.computed_prompts for query in queries) - before
        steps.append(Step(computed, decoded, turn.now() - begin))
        return finished

    with patch.object(engine, "step", recorded_step):
        yield


def fit(steps: Sequence[Step]) -> Costs:
    """The costs that explain the steps' seconds best: least squares, none of them negative."""
    found = np.array(steps, np.float64).reshape(-1, 3)
    prompt, decoded = non_negative(found[:, :2], found[:, 2]).tolist()
    return Costs(prompt, decoded)
