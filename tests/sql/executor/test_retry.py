"""With `retry`, an answer that is no valid value is asked for once more, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from relquery.connection import Connection, connect
from relquery.errors import PartialResultWarning
from relquery.prompt import Answer, Finish, Prompt, Sampling
from tests.sql.conftest import SETUP
from tests.sql.fakes import FakeBackend, Fields, text_of

QUERY = (
    "SELECT id, LLM('How old?', title, output := 'INTEGER', retry := true) FROM films ORDER BY id"
)


class Corrected(FakeBackend):
    """Answers with a word first, with a number once it is told that this is wrong."""

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        for index, prompt in enumerate(prompts):
            text = "".join(map(text_of, prompt))
            is_again = "Your answer was:" in text
            self.texts.append(text)
            given = '{"answer": 7}' if is_again and "Dune" not in text else '{"answer": "old"}'
            yield index, Answer(given, Finish.STOP, prompt_tokens=10, output_tokens=2)

    texts: list[str]


def _unused(query: str, fields: Fields) -> str:
    raise AssertionError


@pytest.fixture
def backend() -> Corrected:
    made = Corrected(_unused)
    made.texts = []
    return made


@pytest.fixture
def con(backend: Corrected) -> Iterator[Connection]:
    with connect(backend) as connection:
        connection.database.execute(SETUP)
        yield connection


def test_the_second_answer_counts(con: Connection, backend: Corrected) -> None:
    with pytest.warns(PartialResultWarning):
        result = con.sql(QUERY)
    rows = [(1, 7), (2, 7), (3, 7), (4, 7), (5, None), (6, None)]
    assert result.fetchall() == rows
    (stage,) = result.report.stages
    assert stage.calls == len(backend.texts) == 8  # four distinct titles, each twice
    assert (stage.attempts, stage.prompt_tokens, stage.output_tokens) == (8, 80, 16)
    (error,) = result.errors
    assert (error.row, error.attempts) == (5, 2)
    assert "expected INTEGER" in str(error.error)
    again = [text for text in backend.texts if "Alien" in text][-1]
    assert 'Your answer was:\n{"answer": "old"}' in again
    assert "It is not valid: The answer is 'old'; expected INTEGER." in again
    with pytest.warns(PartialResultWarning):
        second = con.sql(QUERY)
    assert (second.fetchall(), second.report.calls, len(backend.texts)) == (rows, 0, 8)


def test_without_retry_nothing_is_asked_again(con: Connection, backend: Corrected) -> None:
    with pytest.warns(PartialResultWarning):
        con.sql(QUERY.replace(", retry := true", ""))
    assert len(backend.texts) == 4
