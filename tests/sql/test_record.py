"""What was sent is recorded only if asked for: all in numbers, a bounded part in full."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relquery.connection import Connection
from relquery.errors import ConfigError
from relquery.prompt import Answer, Finish, Role, Span
from relquery.sql.record import StageRecord, reused_characters
from tests.sql.conftest import opened, upper_or_length
from tests.sql.explain.readers import Reader
from tests.sql.fakes import FakeBackend

QUERY = "SELECT LLM('up', title, genre) FROM films WHERE LLM('yes', id, title) = 'Yes'"


@pytest.fixture(scope="module")
def local() -> Iterator[Connection]:
    """With a tokenizer and a prefix cache that count as those of the local engine do."""
    with opened(Reader(upper_or_length)) as con:
        yield con


def test_prompts_are_those_that_were_sent(con: Connection, backend: FakeBackend) -> None:
    backend.reverse = True
    recording = con.sql(QUERY, record=True).recording
    assert recording is not None
    assert list(recording.stages) == ["filter 1", "projection 1"]
    recorded = [
        sent.prompt
        for stage in recording.stages.values()
        for _, sent in sorted(stage.full.items(), reverse=True)  # the backend answers in reverse
    ]
    assert recorded == [asked.prompt for asked in backend.asked]


def test_counts_of_all_prompts_add_up_to_the_report(local: Connection) -> None:
    result = local.sql(QUERY.replace("= 'Yes'", "<> ''"), record=2)
    assert result.recording is not None
    for stage in result.report.stages:
        record = result.recording.stages[stage.name]
        assert len(record.full) == 2 < record.sent == stage.calls
        sums = tuple(map(sum, zip(*record.rows(), strict=True)))
        assert sums == (stage.prompt_tokens, stage.cached_tokens, stage.output_tokens)


def test_what_is_marked_as_reused_is_what_an_earlier_prompt_begins_with(local: Connection) -> None:
    query = "SELECT LLM('What?', title, genre, stars) FROM films"
    result = local.sql(query, record=True)
    assert result.recording is not None
    (record,) = result.recording.stages.values()
    sent = [one for _, one in sorted(record.full.items())]
    marked = 0
    for at, one in enumerate(sent):
        assert one.is_exact
        assert one.reused is not None
        flat = "".join(str(span.content) for span in one.prompt)[: one.reused]
        before = ["".join(str(span.content) for span in other.prompt) for other in sent[:at]]
        assert not flat or any(text.startswith(flat) for text in before) or at == 0
        marked += one.reused > 0
    assert marked >= len(sent) - 1


def test_without_a_tokenizer_the_part_is_estimated(backend: FakeBackend) -> None:
    prompt = (Span("a" * 60, Role.SYSTEM), Span("b" * 40))
    answer = Answer("x", Finish.STOP, prompt_tokens=50, cached_tokens=20)
    assert reused_characters(prompt, answer, backend) == (40, False)


def test_answers_of_the_ledger_are_not_sent(backend: FakeBackend) -> None:
    with opened(backend, ledger=":memory:") as con:
        assert con.sql(QUERY).recording is None  # unless asked for
        recording = con.sql(QUERY, record=True).recording
    assert recording is not None
    assert sum(stage.sent for stage in recording.stages.values()) == 0


def test_a_prompt_without_an_answer_has_a_place() -> None:
    record = StageRecord(5)
    came = record.batch([(Span("a"),), (Span("b"),)])
    came(1, Answer("x", Finish.STOP, prompt_tokens=4, cached_tokens=1, output_tokens=2))
    assert list(record.rows()) == [(0, 0, 0), (4, 1, 2)]
    assert list(record.full) == [1]


def test_record_is_a_boolean_or_a_number(con: Connection) -> None:
    for record in (-1, "all", None, 2.5):
        with pytest.raises(ConfigError, match="the number of prompts"):
            con.sql(QUERY, record=record)  # type: ignore[arg-type]


def test_calls_about_groups_are_recorded() -> None:
    with opened(FakeBackend(lambda query, fields: "x")) as con:
        query = "SELECT genre, AI_AGG('all', title) FROM films GROUP BY genre"
        found = con.sql(query, record=True)
    assert found.recording is not None
    assert found.recording.stages["projection 1"].sent == found.report.calls == 3
