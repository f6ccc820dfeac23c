"""Random submit, step, cancel, evict and failure sequences, with every read of the cache checked.

See LedgerExecutor: no chunk ever reads a slot that holds anything but its own request's prefix.
"""

from __future__ import annotations

from itertools import chain
from math import inf
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from relquery.config import POLICIES, PolicyName, Relocation
from relquery.engine.request.drafts import Drafts
from relquery.engine.scheduling.policies.catalogue import Settings, make_policy
from relquery.engine.scheduling.policies.jobs.priority import Fairness
from relquery.errors import PromptTooLongError, RequestError
from relquery.prompt import Finish
from tests.engine.harness import VOCABULARY, BrokenError, Harness, answer_of, expected_output

TOKEN = st.integers(0, VOCABULARY - 1)
CHOICES = st.lists(st.lists(TOKEN, min_size=1, max_size=5).map(tuple), min_size=1, max_size=3)


SPANS = st.sampled_from([(0, 1, 2, 3, 4), (1, 2), (3,), (), (0, 1, 2, 3, 4, 0)]) | st.recursive(
    TOKEN, lambda inner: st.lists(inner, max_size=5).map(tuple), max_leaves=8
)


def blocks_used(prompt: list[Any], size: int) -> int:
    """Tokens that a prompt takes up in the cache, the empty rest of its blocks among them."""
    lost = 0

    def add(parts: Any) -> int:
        """Count a chain's runs of tokens; gives its length."""
        length = run = 0
        nonlocal lost
        for part in parts:
            if isinstance(part, int):
                run, length = run + 1, length + 1
            elif inner := add(part):
                lost, run, length = lost + -run % size, 0, length + inner
        if parts is not prompt:
            lost += -run % size
        return length

    return add(prompt) + lost


def tokens_of_one_run(prompt: list[Any]) -> float:
    """Tokens of a prompt without spans; infinite with any."""
    empty = [part for part in prompt if not isinstance(part, int) and blocks_used([part], 1) == 0]
    tokens = [part for part in prompt if isinstance(part, int)]
    return len(tokens) if len(tokens) + len(empty) == len(prompt) else inf


class EngineMachine(RuleBasedStateMachine):
    """An engine with a small pool under everything that a caller can do to it."""

    harness: Harness

    @initialize(
        block_size=st.integers(1, 4),
        blocks=st.integers(2, 16),
        budget=st.integers(1, 12),
        seqs=st.integers(1, 6),
        caching=st.booleans() | st.just(True),
        relocation=st.sampled_from(["queries", "cidra"]),
        policy=st.sampled_from(POLICIES),
        fairness=st.builds(
            Fairness,
            starvation=st.none() | st.sampled_from([0.0, 0.02, 0.1]),
            aging=st.sampled_from([0.0, 1.0]),
            weights=st.sampled_from([{}, {"a": 3.0}]),
        ),
        max_input=st.none() | st.integers(8, 30),
        host=st.just(0) | st.integers(2, 12),
    )
    def start(
        self,
        block_size: int,
        blocks: int,
        budget: int,
        seqs: int,
        caching: bool,
        relocation: Relocation,
        policy: PolicyName,
        fairness: Fairness,
        max_input: int | None,
        host: int,
    ) -> None:
        self.harness = Harness(
            policy=make_policy(policy, Settings(fairness=fairness)),
            max_input=max_input,
            host_tokens=block_size * host,
            block_size=block_size,
            cache_tokens=block_size * blocks,
            max_num_batched_tokens=budget,
            max_num_seqs=seqs,
            prefix_caching=caching,
            relocation=relocation,
        )

    @rule(
        like=st.sampled_from([0, 0, 0, 1]),
        lengths=st.lists(st.integers(0, 24), min_size=1, max_size=4),
        tail=st.lists(TOKEN, max_size=2),
        max_tokens=st.integers(1, 8),
        drafted=st.integers(0, 5),
        tenant=st.sampled_from(["", "a"]),
    )
    def submit(
        self,
        like: int,
        lengths: list[int],
        tail: list[int],
        max_tokens: int,
        drafted: int,
        tenant: str,
    ) -> None:
        # Prompts begin with what other requests answer, so that outputs are shared prefixes too.
        group = len(self.harness.executor.prompts)
        for length in lengths:
            prompt = [answer_of(like, at) for at in range(length)] + tail
            number = len(self.harness.executor.prompts)
            draft = [answer_of(number, len(prompt) + at) for at in range(drafted)]
            drafts = Drafts([tuple(draft), (0, 1)]) if drafted and max_tokens > 1 else None
            self._submit(prompt, max_tokens, group=group, drafts=drafts, tenant=tenant)

    @rule(
        prompt=st.lists(TOKEN, min_size=1, max_size=6),
        end=st.frozensets(TOKEN, max_size=1),
        choices=st.just([]) | CHOICES,
        drafts=st.just([]) | CHOICES,
        stop_at=st.none() | TOKEN,
        weighed=st.booleans(),
    )
    def submit_bounded(
        self,
        prompt: list[int],
        end: frozenset[int],
        choices: list[tuple[int, ...]],
        drafts: list[tuple[int, ...]],
        stop_at: int | None,
        weighed: bool,
    ) -> None:
        stop = None if stop_at is None else lambda output: output[-1] == stop_at
        likely = Drafts(drafts) if drafts and not choices else None
        options = {"end": end, "labels": tuple(dict.fromkeys(choices)), "drafts": likely}
        if weighed and choices and end.isdisjoint(chain.from_iterable(choices)):
            self._submit(prompt, 8, **options, scored=True)
        else:
            self._submit(prompt, 8, **options, stop=stop)

    @rule(
        parts=st.lists(SPANS | TOKEN, max_size=6),
        tail=st.lists(TOKEN, min_size=1, max_size=5),
        max_tokens=st.integers(1, 6),
    )
    def submit_spans(self, parts: list[Any], tail: list[int], max_tokens: int) -> None:
        self._submit([*parts, *tail], max_tokens)

    @precondition(lambda self: self.harness.executor.prompts)
    @rule(data=st.data(), after=st.lists(TOKEN, min_size=1, max_size=3))
    def submit_nested(self, data: st.DataObject, after: list[int]) -> None:
        """Requests and their answers, as far as there are, become spans of another."""
        executor = self.harness.executor
        inner = data.draw(st.lists(st.sampled_from(sorted(executor.prompts)), max_size=3))
        spans = [(*executor.prompts[i], *executor.requests[i].output) for i in inner]
        self._submit([*data.draw(st.permutations(spans)), *after], 3)

    def _submit(self, prompt: list[Any], max_tokens: int, **options: Any) -> None:
        used = blocks_used(prompt, self.harness.config.block_size)
        one_pass = max_tokens == 1 or options.get("scored", False)
        config = self.harness.config
        one_pass &= config.relocation != "cidra" or tokens_of_one_run(prompt) < inf
        at_once = one_pass and blocks_used(prompt, 1) <= (config.max_input or 0)
        if not prompt:
            with pytest.raises(RequestError):
                self.harness.submit(prompt, max_tokens, **options)
        elif used >= self.harness.engine.capacity and not at_once:
            with pytest.raises(PromptTooLongError):
                self.harness.submit(prompt, max_tokens, **options)
        else:
            self.harness.submit(prompt, max_tokens, **options)

    def _open(self) -> bool:
        return bool(self.harness.engine.waiting or self.harness.engine.running)

    @precondition(_open)
    @rule(steps=st.integers(1, 8))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            if self._open():
                self.harness.step()

    @precondition(_open)
    @rule(error=st.sampled_from([BrokenError, KeyboardInterrupt, MemoryError]))
    def fail(self, error: type[BaseException]) -> None:
        self.harness.executor.failure = error()
        with pytest.raises(error):
            self.harness.step()

    @precondition(lambda self: self.harness.executor.requests)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(list(self.harness.executor.requests.values())))
        was_open = request.finish is None
        assert self.harness.engine.cancel(request) == was_open
        if was_open:
            assert request.finish is Finish.CANCELLED

    @rule(count=st.integers(0, 12))
    def evict(self, count: int) -> None:
        pool = self.harness.engine.pool
        before = pool.available
        assert 0 <= pool.evict(count) <= count
        assert pool.available == before

    @invariant()
    def in_order(self) -> None:
        if hasattr(self, "harness"):
            self.harness.check()

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        self.harness.executor.failure = None  # a fail() that broke off before would hide why
        self.harness.run()
        assert self.harness.engine.pool.held == 0
        answered = [request.id for request in self.harness.finished]
        assert len(answered) == len(set(answered)), "a request is answered twice"
        for request in self.harness.executor.requests.values():
            assert (request.finish is Finish.CANCELLED) == (request.id not in answered)
            if request.scored:
                request.max_tokens = 8  # which room for one token does not bound
            expected = expected_output(request)
            if request.finish is Finish.CANCELLED:
                assert request.output == expected[: len(request.output)]
            else:
                assert request.output == expected
                assert request.cached is not None
                assert request.cached <= request.prompt_tokens - 1 or request.cached == 0


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(max_examples=150, stateful_step_count=25)
