"""Storms on a network: whatever comes in any order, answers are those of a prompt alone."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.open import load_backend
from relquery.config import POLICIES, PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.executor import VirtualClock
from relquery.engine.requests.labels import Normalization
from relquery.prompt import Answer, Finish, Prompt, Reuse, Sampling, Span
from tests.backends.local.collected import Collected

MODEL = "random:layers=2,hidden=32,heads=2,context=256,seed=3"
COST = LinearCost(1e-4, 1e-3, 1e-4, 1e-3)
LABELS = ("Yes", "No", "Yes, but", "Nobody")
KINDS: dict[str, tuple[Sampling, Normalization | None]] = {
    "short": (Sampling(max_tokens=9), None),
    "long": (Sampling(max_tokens=30), None),
    "one pass": (Sampling(max_tokens=1), None),
    "sampled": (Sampling(max_tokens=7, temperature=0.8, seed=5), None),
    "stopped": (Sampling(max_tokens=20, stop=("a", "e")), None),
    "choices": (Sampling(labels=("Yes", "No", "Maybe")), None),
    "many choices": (Sampling(labels=tuple(f"{7 * n % 10}th way" for n in range(9))), None),
    "joint scores": (Sampling(labels=LABELS), "joint"),
    "branch scores": (Sampling(labels=LABELS), "branch"),
}


def pool() -> list[Prompt]:
    """Prompts with beginnings and passages in common."""
    rng = Random(0)
    heads = ["", "the same head of all of them, ", "the same head of some, "]
    prompts: list[Prompt] = []
    for _ in range(30):
        head = Span(rng.choice(heads))
        tail = Span("".join(rng.choice("abcdef ") for _ in range(rng.randint(1, 40))))
        passages = [
            Span(f"passage {rng.randint(0, 3)} is this. ", reuse=Reuse.INDEPENDENT)
            for _ in range(rng.choice([0, 0, 0, 2]))
        ]
        prompts.append((head, *passages, tail))
    return prompts


PROMPTS = pool()


@pytest.fixture(scope="module")
def alone() -> dict[str, list[Answer]]:
    backend = load_backend(MODEL, policy="fcfs", cache_tokens=4096, max_num_seqs=1)
    found = {}
    for kind, (sampling, scored) in KINDS.items():
        answers = Collected(backend, PROMPTS, sampling, scored=scored).finish()
        found[kind] = [answers[number] for number in range(len(PROMPTS))]
    backend.close()
    return found


def opened(policy: PolicyName, rng: Random) -> EmbeddedBackend:
    """An engine that few prompts fill."""
    size = rng.choice([1, 4, 16])
    options: dict[str, Any] = {
        "block_size": size,
        "cache_tokens": -(-rng.choice([140, 200, 320]) // size) * size,
        "max_num_batched_tokens": rng.choice([8, 32, 128]),
        "max_num_seqs": rng.choice([2, 8]),
        "max_input": rng.choice([None, 64, 200]),
        "starvation": rng.choice([None, 0.0, 0.01, 0.05]),
        "aging": rng.choice([0.0, 0.5]),
        "weights": {"a": rng.choice([1.0, 3.0])},
    }
    backend = load_backend(MODEL, policy=policy, cost=COST, **options)
    backend.engine.clock = VirtualClock()
    return backend


def storm(backend: EmbeddedBackend, rng: Random) -> Iterator[tuple[str, list[int], Collected]]:
    """Jobs that come in bursts, some of which are cancelled on the way."""
    clock = backend.engine.clock
    assert isinstance(clock, VirtualClock)
    came: list[Collected] = []

    def step() -> None:
        if any(job.is_open for job in came):
            clock.advance(0.01)
            backend.batches.step()
            backend.engine.pool.check()

    for _ in range(6):
        for _ in range(rng.randint(1, 3)):
            kind = rng.choice(list(KINDS))
            numbers = [rng.randrange(len(PROMPTS)) for _ in range(rng.randint(1, 6))]
            sampling, scored = KINDS[kind]
            asked = [PROMPTS[number] for number in numbers]
            tenant = rng.choice(["", "a", "b"])
            came.append(Collected(backend, asked, sampling, tenant=tenant, scored=scored))
            yield kind, numbers, came[-1]
        for _ in range(rng.randint(0, 12)):
            step()
        if rng.random() < 0.3:
            backend.cancel(rng.choice(came))
    while any(job.is_open for job in came):
        step()


QUICK = {"shortest", "relserve"}  # one of each family; the others are long


@pytest.mark.parametrize(
    "policy", [p if p in QUICK else pytest.param(p, marks=pytest.mark.long) for p in POLICIES]
)
def test_in_any_storm_each_prompt_has_the_answer_that_it_has_alone(
    policy: PolicyName, alone: dict[str, list[Answer]]
) -> None:
    rng = Random(f"{policy} 1")
    backend = opened(policy, rng)
    checked = 0
    for kind, numbers, job in list(storm(backend, rng)):
        answers = dict(job.answers)
        assert sorted(answers) == list(range(len(numbers)))
        for index, number in enumerate(numbers):
            answer, expected = answers[index], alone[kind][number]
            if answer.finish is Finish.CANCELLED:
                continue
            if answer.error != expected.error:  # what this engine has no room for
                assert "cache_tokens" in str(answer.error) or "max_input" in str(answer.error)
                continue
            assert answer.tokens == expected.tokens
            if expected.scores is not None and answer.scores is not None:
                assert answer.scores == pytest.approx(expected.scores, abs=1e-4)
            checked += 1
    assert checked > 10
    assert backend.engine.pool.held == 0
    assert not backend.engine.relqueries
    backend.close()
