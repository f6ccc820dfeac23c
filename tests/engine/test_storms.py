"""Storms: random engines, and random relQueries that come in bursts, are cancelled and starve.

Whatever comes, in whatever order: every answer is the one that its prompt has alone, and no chunk
ever reads a slot that holds anything but its own request's prefix (see LedgerExecutor).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import Any

import pytest

from relquery.config import POLICIES, PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.requests.declared import NOTHING, Declared
from relquery.engine.requests.labels import Drafts
from relquery.engine.requests.request import Draw, Request
from relquery.engine.scheduling.policies.catalogue import PolicySettings, make_policy
from relquery.engine.scheduling.policies.priority import Fairness
from relquery.errors import PromptTooLongError
from relquery.prompt import Finish
from tests.engine.harness import (
    VOCABULARY,
    BrokenError,
    Harness,
    ToyMatcher,
    answer_of,
    chain_of,
    expected_output,
)

END = frozenset({VOCABULARY})
LABELS = ((1,), (2, 3), (2, 4, 1), (2, 4))
KINDS = (
    *("decode", "decode", "decode", "one pass", "labels", "choices", "drafts", "spans"),
    *("grammar", "grammar with spans", "nested"),
)
ERRORS = (BrokenError, KeyboardInterrupt, MemoryError)
COSTS = (LinearCost(1e-3, 0.01, 1e-3, 0.03), LinearCost(1e-4, 0.001, 1e-4, 0.1))
TENANTS = ("", "a", "b")


def fairness_of(rng: Random) -> Fairness:
    """Thresholds from none to one that everybody exceeds at once."""
    weights = {"a": rng.choice([0.2, 1.0, 3.0])}
    return Fairness(rng.choice([None, 0.0, 0.01, 0.03, 0.1]), rng.choice([0.0, 0.1, 3.0]), weights)


def limits_of(rng: Random) -> dict[str, Any]:
    """A cache that few requests fill."""
    size = rng.randint(1, 4)
    return {
        "block_size": size,
        "cache_tokens": size * rng.randint(8, 20),
        "max_num_batched_tokens": rng.choice([rng.randint(1, 8), rng.randint(8, 40)]),
        "max_num_seqs": rng.randint(1, 12),
        "max_input": rng.choice([None, None, rng.randint(8, 40)]),
        "prefix_caching": rng.random() < 0.9,
        "share_prefixes": rng.random() < 0.7,
    }


def tokens_used(prompt: list[Any], size: int) -> int:
    """Tokens that a prompt takes up in the cache, the empty rest of its blocks among them."""
    lost = 0

    def add(parts: Any) -> int:
        """Count a chain's runs of tokens; gives its length."""
        nonlocal lost
        length = run = 0
        for part in parts:
            if isinstance(part, int):
                run, length = run + 1, length + 1
            elif inner := add(part):
                lost, run, length = lost + -run % size, 0, length + inner
        if parts is not prompt:
            lost += -run % size
        return length

    return add(prompt) + lost


@dataclass
class Storm:
    """One storm of a policy: `run` lets it pass, and then checks every answer and every block."""

    policy: PolicyName
    seed: int
    harness: Harness = field(init=False)
    rng: Random = field(init=False)
    limits: dict[int, int] = field(default_factory=dict)
    steps: int = 0
    submitted: int = 0

    def __post_init__(self) -> None:
        self.rng = Random(f"{self.policy} {self.seed}")
        given = PolicySettings(self.rng.choice(COSTS), fairness_of(self.rng))
        self.harness = Harness(policy=make_policy(self.policy, given), **limits_of(self.rng))

    @property
    def open(self) -> list[Request]:
        return [*self.harness.engine.waiting, *self.harness.engine.running]

    def run(self, events: int = 40) -> None:
        """So many things happen; then all that is open is served."""
        for _ in range(events):
            self.rng.choice([self.burst, self.calm, self.calm, self.calm, self.trouble])()
        tokens = sum(
            request.prompt_tokens + self.limits[request.id]
            for request in self.harness.executor.requests.values()
        )
        before = len(self.harness.executor.steps)
        while self.open:
            self.harness.step()
            assert len(self.harness.executor.steps) - before <= 4 * tokens, "no end is in sight"
        self.check()

    def burst(self) -> None:
        """Some relQueries come at once."""
        for _ in range(self.rng.randint(1, 4)):
            self.submitted += 1
            kind, tenant = self.rng.choice(KINDS), self.rng.choice(TENANTS)
            head, declared = self._tokens(self.rng.choice([0, 4, 9, 20])), self._declared()
            for _ in range(self.rng.randint(1, 6)):
                tokens = [*head, *self._tokens(self.rng.randint(1, 6))]
                self._submit(kind, tokens, tenant, declared)

    def calm(self) -> None:
        """Steps, or time in which nothing happens."""
        if not self.open:
            self.harness.executor.clock.advance(self.rng.random())
        for _ in range(self.rng.randint(1, 6)):
            if self.open:
                self.harness.step()

    def trouble(self) -> None:
        """A request or a relQuery is cancelled, the cache loses blocks, a step fails, or a span is
        registered for all tenants."""
        engine, kind = self.harness.engine, self.rng.randrange(5)
        if kind == 0:
            before, count = engine.pool.available, self.rng.randint(0, 12)
            assert 0 <= engine.pool.evict(count) <= count
            assert engine.pool.available == before
        elif kind == 1 and self.open:
            self.harness.executor.failure = error = self.rng.choice(ERRORS)()
            with suppress(type(error)):
                self.harness.step()
                assert self.harness.executor.failure is error, "it computed something"
            self.harness.executor.failure = None
        elif kind == 4:
            engine.commons.register(Request(-1, chain_of(((1, 2), 3)), 1))
        elif self.open:
            one = self.rng.choice(self.open)
            for request in self.open:
                if request is one or (kind == 3 and request.group == one.group):
                    assert engine.cancel(request)
                    assert request.finish is Finish.CANCELLED
                    assert not engine.cancel(request)
        self.harness.check()

    def check(self) -> None:
        """Each request has ended once, with the answer that it has alone, and holds nothing."""
        assert self.harness.engine.pool.held == 0
        assert not self.harness.engine.relqueries
        assert not self.harness.engine._open.dated
        finished = [request.id for request in self.harness.finished]
        assert len(set(finished)) == len(finished)
        for request in self.harness.executor.requests.values():
            is_late = "deadline" in (request.error or "")
            is_cancelled = request.finish is Finish.CANCELLED
            assert is_cancelled == (is_late or request.id not in finished)
            request.max_tokens = self.limits[request.id]  # what is scored needs room for one only
            expected = expected_output(request)
            if request.finish is Finish.CANCELLED:
                assert request.output == expected[: len(request.output)]
            else:
                assert request.output == expected
                assert request.cached is not None
                is_forced = request.draw.matcher is not None  # from the beginning, it may be
                assert request.cached < request.prompt_tokens + is_forced

    def _tokens(self, count: int) -> list[int]:
        like = self.rng.randrange(3)
        return [answer_of(like, at) for at in range(count)]

    def _matcher(self) -> ToyMatcher:
        """Forced tokens, free ones, and places where the answer may end."""
        choices = ((1,), (3,), (0,), (0, 2), (2, *END), tuple(range(VOCABULARY)))
        return ToyMatcher(tuple(self.rng.choices(choices, k=self.rng.randint(1, 14))))

    def _declared(self) -> Declared:
        """Few names, so that several bursts have the same one."""
        if self.rng.random() < 0.5:
            return NOTHING
        rows = self.rng.choice([None, 1, 9, 10_000])
        name = self.rng.choice("abc")
        return Declared(name, rows, self.rng.choice([None, None, 0.01, 0.3, 1.0, 5.0]))

    def _submit(self, kind: str, prompt: list[Any], tenant: str, declared: Declared) -> None:
        number = len(self.harness.executor.requests)
        options: dict[str, Any] = {"group": self.submitted}
        limit = self.rng.randint(2, 16)
        match kind:
            case "one pass":
                limit = 1
            case "labels" | "choices":
                options |= {"labels": LABELS, "end": END, "scored": kind == "labels"}
            case "drafts":
                likely = [answer_of(number, len(prompt) + at) for at in range(3)]
                options["drafts"] = Drafts([tuple(likely), (0, 1)])
            case "spans":
                prompt = [*self._spans(), *prompt[:5], (1, 2), 3]
                limit = self.rng.choice([1, limit])
            case "nested":
                prompt = [*self._earlier(), *prompt[:5]]
        if kind.startswith("grammar"):
            options |= {"draw": Draw(matcher=self._matcher()), "end": END}
            prompt = prompt if kind == "grammar" else [*self._spans(), *prompt[:5], (1, 2), 3]
        if self._fits(prompt, limit == 1 or options.get("scored", False)):
            request = self.harness.submit(prompt, limit, tenant, declared, **options)
            self.limits[number] = 9 if request.scored else request.max_tokens
        else:
            with pytest.raises(PromptTooLongError):
                self.harness.submit(prompt, limit, tenant, declared, **options)

    def _spans(self) -> list[tuple[Any, ...]]:
        """A span, which may be empty, and spans in spans."""
        return [
            tuple(self._tokens(self.rng.randint(0, 7))),
            *([self._tree(3)] * self.rng.choice([0, 1])),
        ]

    def _tree(self, depth: int) -> tuple[Any, ...]:
        parts = self._tokens(self.rng.randint(0, 4))
        below = [self._tree(depth - 1) for _ in range(self.rng.randint(0, 2))] if depth else []
        return tuple(self.rng.sample([*parts, *below], len(parts) + len(below)))

    def _earlier(self) -> list[tuple[Any, ...]]:
        """Requests and their answers, as far as there are, become spans of another."""
        executor, count = self.harness.executor, self.rng.randint(0, 3)
        inner = self.rng.choices([*executor.prompts], k=count) if executor.prompts else []
        return [(*executor.prompts[one], *executor.requests[one].output) for one in inner]

    def _fits(self, prompt: list[Any], one_pass: bool) -> bool:
        """Whether the cache has room for a prompt and a token, or one step computes it whole."""
        config, tokens = self.harness.config, tokens_used(prompt, 1)
        if one_pass and tokens <= (config.max_input or 0):
            return True
        return tokens_used(prompt, config.block_size) < self.harness.engine.capacity


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 20), marks=pytest.mark.long)])
def test_in_any_storm_each_request_has_the_answer_that_it_has_alone(
    policy: PolicyName, seeds: range
) -> None:
    for seed in seeds:
        Storm(policy, seed).run()


# ---- Ctrl-C at any line

PROMPTS = [range(7), range(7), range(20), [1, (2, 3, 4, 0, 1), 2]]


@contextmanager
def ctrl_c_at(line: int) -> Iterator[list[int]]:
    """Ctrl-C after so many lines of the engine's code. Yields a list with the lines so far."""
    lines = [0]

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if "/relquery/engine/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == line:
                signal.raise_signal(signal.SIGINT)
        return trace

    traced, before = sys.gettrace(), signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(traced)
        signal.signal(signal.SIGINT, before)


def run(line: int) -> tuple[list[list[int]], int]:
    """Answers of an engine that is interrupted at a line, and how many lines there were."""
    harness = Harness(cache_tokens=40, max_num_batched_tokens=12)
    requests = [harness.submit(prompt) for prompt in PROMPTS]
    finished = []
    with ctrl_c_at(line) as lines:
        while any(request.finish is None for request in requests):
            try:
                finished += harness.engine.step()
            except KeyboardInterrupt:
                continue
    assert not harness.engine.running
    assert not harness.engine.waiting
    harness.check()
    assert harness.engine.pool.held == 0
    finished += harness.engine.step()  # what the last step has not returned
    assert len({one.id for one in finished}) == len(finished)
    return [request.output for request in requests], lines[0]


@pytest.mark.parametrize("every", [211, pytest.param(7, marks=pytest.mark.long)])
def test_an_interrupt_at_any_line_changes_no_answer(every: int) -> None:
    expected, lines = run(0)
    assert lines > 1_000
    for line in range(1, lines, every):
        assert run(line)[0] == expected, line
