"""Each cause of a missed hit follows from times, tokens and hashes in a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relquery.errors import ConfigError
from relquery.ledger import Call, Keys, Ledger, turns
from relquery.ledger.diagnosis import Cause, Finding
from relquery.ledger.facts import Expected, Plan, Why
from relquery.ledger.records import Filter, opened, prune
from relquery.ledger.summary import CacheUse, examine
from relquery.prompt import Answer, Finish, Sampling, Span
from tests.cases import cases

MARKED = Plan(b"1" * 16, 1024, 1, True, 300.0, 2.0, 2.5, 0.2)
AUTOMATIC = Plan(b"2" * 16, 1024, 128, False, 300.0, 2.0, 2.0, 0.2)
PREFIX = b"p" * 32


@dataclass(frozen=True)
class Asked:
    """A prompt of 2,000 tokens, of which 1,500 are the prefix. sent, came: seconds."""

    sent: float | None
    came: float
    cached: int = 0
    written: int = 0
    why: Why = "reads"
    tokens: int = 1500
    prompt: int = 2000
    told: bool = True
    error: str | None = None
    writer: int | None = 0
    shared: int = 1500

    def expected(self, plan: Plan, place: int) -> Expected:
        reads, shares = self.why == "reads", self.why in ("reads", "writes")
        tokens, prefix = self.tokens if reads else 0, PREFIX if shares else None
        writer = self.writer if reads else None
        return Expected(plan, place, self.why, tokens, self.shared, 2000, writer, prefix)

    def answer(self) -> Answer:
        took = None if self.sent is None else self.came - self.sent
        if self.error is not None:
            return Answer(None, Finish.ERROR, self.error, took=took)
        more: Any = {"written_tokens": self.written, "took": took, "tells_cached": self.told}
        return Answer("x", Finish.STOP, None, self.prompt, self.cached, 1, **more)


def store(path: Path, plan: Plan, asked: Sequence[Asked], *, foresees: bool = True) -> None:
    """Store answers and, unless it is to be as in earlier versions, what was expected of them."""
    prompts = [(Span(f"{plan.number!r} {at}"),) for at in range(len(asked))]
    keys = Keys.of("openai:m", prompts, Sampling())
    came = [0.0]
    call = Call("openai:m", Sampling(), lambda: 0.0, now=lambda: came[0])
    told = (lambda at: asked[at].expected(plan, at)) if foresees else None
    with (
        closing(Ledger.open(path)) as ledger,
        turns(prompts, np.arange(len(asked)), ledger, keys, call, foreseen=told) as some,
    ):
        ledger.run = 1
        turn = next(some)
        for came[0], index, at in sorted(
            (asked[at].came, index, at) for index, at in enumerate(turn.places.tolist())
        ):
            turn.heard(index, asked[at].answer())


def found(tmp_path: Path, plan: Plan, *asked: Asked) -> tuple[list[Finding], CacheUse]:
    path = tmp_path / "l.db"
    store(path, plan, asked)
    findings, (group,) = examine(path, Filter())
    return sorted(findings, key=lambda each: each.entry.place), group


WRITER = Asked(0, 1, written=1500, why="writes")


def test_a_prompt_that_reads_what_was_written_before_is_a_hit(tmp_path: Path) -> None:
    findings, group = found(tmp_path, MARKED, WRITER, Asked(2, 3, 1500))
    assert [each.cause for each in findings] == [None, None]
    assert (group.readers, group.hits, group.expected, group.reported) == (1, 1, 1500, 1500)
    assert (group.missed, group.usd) == (0, None)


def test_a_miss_has_the_cause_that_the_facts_tell(tmp_path: Path) -> None:
    plans = {
        "marked": MARKED,
        "automatic": AUTOMATIC,
        "hour": replace(MARKED, lifetime=3600.0),
        "plain": Plan(b"3" * 16),
    }
    for number, (plan, written, (sent, came, more), cause) in enumerate(cases(__file__)):
        (tmp_path / str(number)).mkdir()
        asked = replace(WRITER, **written), Asked(sent, came, **more)
        findings, group = found(tmp_path / str(number), plans[plan], *asked)
        assert (number, findings[1].cause) == (number, Cause[cause])
        assert group.causes[Cause[cause]].answers == 1
    findings, _ = found(tmp_path, MARKED, Asked(2, 3, writer=7))
    assert findings[0].cause is Cause.UNKNOWN, "nobody has written it in this ledger"


def test_each_use_lets_an_entry_live_on(tmp_path: Path) -> None:
    late = [Asked(250 * at, 250 * at + 1, 1500) for at in range(1, 4)]
    findings, _ = found(tmp_path, MARKED, WRITER, *late, Asked(1052, 1053))
    assert [each.cause for each in findings[1:]] == [None] * 3 + [Cause.EXPIRED]


def test_another_reader_may_have_written_before(tmp_path: Path) -> None:
    failed = replace(WRITER, error="HTTP 500")
    asked = failed, Asked(0.5, 2, written=1500), Asked(3, 4, 1500), Asked(5, 6)
    findings, _ = found(tmp_path, MARKED, *asked)
    causes = [each.cause for each in findings]
    assert causes == [None, Cause.FAILED, None, Cause.EVICTED]


def test_a_request_that_read_a_shorter_prefix_misses_the_rest(tmp_path: Path) -> None:
    findings, group = found(tmp_path, MARKED, WRITER, Asked(0.5, 2, 1100, 400))
    assert (findings[1].missed, findings[1].cause) == (400, Cause.CONCURRENT)
    assert group.missed == 400


def test_a_miss_costs_what_was_paid_above_reading(tmp_path: Path) -> None:
    sent, written = Asked(0.5, 2), Asked(0.6, 2, written=1500)
    findings, group = found(tmp_path, MARKED, WRITER, sent, written)
    paid = [each.usd for each in findings[1:]]
    assert paid == pytest.approx([1500 * 1.8e-6, 1500 * 2.3e-6])
    assert group.usd == pytest.approx(sum(each or 0 for each in paid))
    assert group.causes[Cause.CONCURRENT].usd == group.usd


def test_expectations_are_scaled_to_the_provider_s_tokens(tmp_path: Path) -> None:
    wide = replace(WRITER, prompt=2400, written=1800)
    read, missed = Asked(2, 3, 1760, prompt=2400), Asked(3.5, 4, prompt=2400)
    findings, _ = found(tmp_path, MARKED, wide, read, missed)
    assert [each.expected for each in findings] == [0, 1760, 1760]
    assert [each.missed for each in findings] == [0, 0, 1760]


def test_an_automatic_cache_serves_whole_steps(tmp_path: Path) -> None:
    findings, _ = found(tmp_path, AUTOMATIC, WRITER, Asked(2, 3, 1408), Asked(4, 5, 1900))
    assert [each.expected for each in findings[1:]] == [1408, 1408]
    assert [each.cause for each in findings[1:]] == [None, None]


def test_an_answer_that_came_after_a_failure_is_what_counts(path: Path) -> None:
    store(path, MARKED, [WRITER, Asked(2, 3, error="HTTP 500")])
    (_, second), _ = examine(path, Filter())
    assert (second.cause, second.expected) == (None, 0), "what has no answer has read nothing"
    store(path, MARKED, [WRITER, Asked(2, 3, 1500)])
    _, (group,) = examine(path, Filter())
    assert (group.answers, group.hits) == (2, 1)


def test_filters_leave_out_answers_and_not_what_tells_of_them(path: Path) -> None:
    store(path, MARKED, [WRITER, Asked(0.5, 2)])
    (one,), _ = examine(path, Filter(since=1.5))
    assert one.cause is Cause.CONCURRENT
    with pytest.raises(ConfigError, match="nothing of a model 'other'"):
        examine(path, Filter(model="other"))


def test_pruning_takes_expectations_with_their_answers(path: Path) -> None:
    store(path, MARKED, [WRITER, Asked(2, 3, 1500)])
    prune(path, Filter(before=2.0))
    (one,), _ = examine(path, Filter())
    assert one.entry.place == 1
    prune(path, Filter(before=20.0))
    with closing(Ledger.open(path)) as ledger:
        for table in ("expected", "plans"):
            assert ledger.connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_a_file_without_expectations_counts_its_answers_and_gets_some(path: Path) -> None:
    with closing(Ledger.open(path)) as ledger:
        ledger.put([(b"k", Answer("x", Finish.STOP))])
    assert examine(path, Filter()) == ([], [CacheUse(None, None, unplanned=1)])
    store(path, MARKED, [WRITER])
    _, groups = examine(path, Filter())
    assert [(group.run, group.answers, group.unplanned) for group in groups] == [
        (None, 0, 1),
        (1, 1, 0),
    ]


def test_a_file_with_facts_alone_is_read_and_written_as_before(path: Path) -> None:
    store(path, MARKED, [WRITER, Asked(2, 3, 1500)], foresees=False)
    assert examine(path, Filter()) == ([], [CacheUse(1, "openai:m", unplanned=2)])
    store(path, AUTOMATIC, [replace(WRITER, written=0), Asked(2, 3)])
    _, (group,) = examine(path, Filter())
    assert (group.answers, group.unplanned, set(group.causes)) == (2, 2, {Cause.EVICTED})
    with opened(path) as records:
        assert sum(one.answers for one in records.groups(Filter())) == 4
