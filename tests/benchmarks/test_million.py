"""Planning many rows: memory per row, and how many prompts are there at one time."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence

from benchmarks.queries.million import AtOnce, measure, reviews
from relquery.connection import connect
from relquery.prompt import Answer, Finish, Prompt, Sampling, Span

ROWS = 50_000
SQL = "SELECT LLM('Is it good?', genre, title, synopsis, score, review) FROM t"


def spans() -> int:
    """How many there are in memory."""
    return sum(type(one) is Span for one in gc.get_objects())


class Counting(AtOnce):
    """Counts the spans made since, and in memory, now and then while it answers."""

    def __init__(self) -> None:
        super().__init__()
        gc.collect()  # what other tests have left
        self.before = spans()
        self.most = 0

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        for index, prompt in enumerate(prompts):
            if index % 9_000 == 0:
                self.most = max(self.most, spans() - self.before)
            yield index, Answer(str(len(prompt)), Finish.STOP)


def test_no_more_prompts_are_in_memory_than_a_bounded_number() -> None:
    backend = Counting()
    with connect(backend, order="fixed") as connection:
        connection.register("t", reviews(ROWS))
        assert len(connection.sql(SQL)) == ROWS
    assert 0 < backend.most < ROWS / 2


def test_a_row_takes_a_bounded_amount_of_memory() -> None:
    few, many = measure(2_000), measure(20_000)
    assert many["rows"] == 20_000
    per_row = (many["peak_gib"] - few["peak_gib"]) * 2**30 / 18_000
    assert per_row < 8_000
