"""What clients declare about their jobs, on an engine that computes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from relquery.backends.local.service import Engine
from relquery.engine.requests.relquery import RelQuery
from relquery.errors import ConfigError, DeadlineError
from relquery.model.native_runtime import NativeExecutor
from relquery.prompt import Finish, Span
from tests.backends.local.test_service import PATIENCE, opened


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with opened() as engine:
        yield engine


def known(engine: Engine, name: str, tenant: str = "") -> RelQuery | None:
    named = engine._worker.engine.engine._open.named
    return engine._worker.call(lambda: named.find(tenant, name, engine._worker.clock.now()), None)


def test_jobs_of_one_name_are_one_relquery_and_each_has_its_own_answers(engine: Engine) -> None:
    def submit(*prompts: str) -> list[str | None]:
        job = engine.submit(prompts, max_tokens=4, relquery="x", rows=4, tenant="t")
        return [one.text for one in job.result(PATIENCE)]

    alone = engine.submit(["b", "c"], max_tokens=4).result(PATIENCE)
    submit("a")
    assert submit("b", "c") == [one.text for one in alone]
    found: Any = known(engine, "x", "t")
    assert (found.size, found.answered, found.expected) == (3, 3, 1)
    assert known(engine, "x") is None
    submit("d")
    assert known(engine, "x", "t") is None


def test_a_job_has_its_own_latency(engine: Engine) -> None:
    totals = []
    for prompt, most in (("a", 4), ("b", 40)):
        job = engine.submit([prompt], max_tokens=most, relquery="y", rows=9)
        job.result(PATIENCE)
        assert job.latency is not None
        totals.append(job.latency.total)
    relquery: Any = known(engine, "y")
    assert sum(totals) < relquery.latency.total + 1e-9


def test_prompts_that_cannot_be_served_count_as_rows_that_came(engine: Engine) -> None:
    job = engine.submit(["a", "long " * 500], max_tokens=4, relquery="z", rows=2)
    assert [one.text is None for one in job.result(PATIENCE)] == [False, True]
    assert known(engine, "z") is None


def test_a_cancelled_job_leaves_the_others_of_its_relquery(engine: Engine) -> None:
    first = engine.submit(["a"] * 3, max_tokens=30, relquery="v")
    second = engine.submit(["b"] * 3, max_tokens=30, relquery="v")
    first.cancel()
    assert all(one.text is not None for one in second.result(PATIENCE))
    first.result(PATIENCE)


def test_what_cannot_be_declared_is_refused_at_the_call(engine: Engine) -> None:
    with pytest.raises(ConfigError, match="rows is given, but nothing"):
        engine.submit(["a"], rows=3)
    with pytest.raises(ConfigError, match="deadline is -1"):
        engine.submit(["a"], deadline=-1)


def test_tenants_whose_prefixes_are_not_shared_read_only_their_own() -> None:
    prompt = "A passage about the surf that everybody asks about again and again. What is it?"
    with opened(share_prefixes=False) as engine:
        answers = [
            engine.submit([prompt], max_tokens=5, tenant=tenant).result(PATIENCE)[0]
            for tenant in "aba"
        ]
        (spaced,) = engine.submit([(Span(prompt),)], max_tokens=5, tenant="b").result(PATIENCE)
    assert [one.cached_tokens > 0 for one in (*answers, spaced)] == [False, False, True, True]
    assert answers[2].cached_tokens == spaced.cached_tokens
    assert len({one.text for one in answers}) == 1


def test_a_job_that_cannot_be_in_time_is_refused_uncomputed(engine: Engine) -> None:
    engine.submit(["a"], max_tokens=4).result(PATIENCE)
    before = engine._worker.call(lambda: engine._worker.engine.engine.experience.admitted, 0)
    job = engine.submit([f"{n}" for n in range(50)], max_tokens=30, deadline=1e-4, relquery="d")
    with pytest.raises(DeadlineError, match=r"deadline (is in|of its)") as raised:
        job.result(PATIENCE)
    assert raised.value.estimate > 1e-4
    after = engine._worker.call(lambda: engine._worker.engine.engine.experience.admitted, 0)
    assert after == before
    assert (job.done, job.answered) == (True, 0)
    assert known(engine, "d") is None
    assert engine.submit(["a"], max_tokens=4, deadline=60).result(PATIENCE)[0].text is not None


def test_what_is_open_ends_when_the_deadline_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(policy="fcfs", cost=None, max_num_seqs=1) as engine:
        for name in ("execute", "follow"):
            compute = getattr(NativeExecutor, name)
            monkeypatch.setattr(NativeExecutor, name, slowed(compute))
        job = engine.submit(["a", "b"], max_tokens=200, deadline=0.1)
        answers = job.result(PATIENCE)
    assert [one.finish for one in answers] == [Finish.CANCELLED] * 2
    assert all("deadline of its relQuery, 0.1 s" in str(one.error) for one in answers)
    assert job.latency is not None
    assert 0.1 <= job.latency.total < 1.5


def slowed(compute: Callable[..., Any]) -> Callable[..., Any]:
    def computed(*arguments: Any) -> Any:
        time.sleep(0.01)
        return compute(*arguments)

    return computed
