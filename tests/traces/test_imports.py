"""Published traces: what is read of each form, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from relquery.errors import TableError
from relquery.traces.imports import import_trace
from relquery.traces.simulate import approximate_tokens
from relquery.traces.trace import TracedQuery, load, save
from tests.cases import cases

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        return tmp_path / name

    return written


def seen(query: TracedQuery) -> tuple[float, int, int]:
    """When it arrives, and the tokens of its prompt and of its answer."""
    (row,), (answer,) = query.rows, query.outputs
    tokens = query.hashed[0].tokens if query.hashed else len(approximate_tokens(row))
    return round(query.arrival, 6), tokens, answer


def test_traces_of_lengths_come_with_their_times_and_prompts_that_share_nothing(
    write: Write,
) -> None:
    for name, text, expected in cases(__file__, "lengths"):
        queries = import_trace(write(name, text))
        assert [list(seen(query)) for query in queries] == expected
        assert len({query.hashed for query in queries}) == len(queries)
        assert {query.output_limit for query in queries} == {max(each[2] for each in expected)}


MOONCAKE = [
    {"timestamp": 2500, "input_length": 600, "output_length": 3, "hash_ids": [7, 9]},
    {"timestamp": 1000, "input_length": 1024, "output_length": 8, "hash_ids": [7, 8]},
    {"timestamp": 3000, "input_length": 5, "output_length": 0, "hash_ids": [1]},
]


def test_prompts_share_the_blocks_that_mooncakes_trace_says_they_share(
    write: Write, tmp_path: Path
) -> None:
    path = write("day.jsonl", "\n".join(map(json.dumps, MOONCAKE)))
    first, second = import_trace(path)
    assert [seen(query) for query in (first, second)] == [(0.0, 1024, 8), (1.5, 600, 3)]
    one, other = (query.hashed[0].token_ids for query in (first, second))
    assert one[:512].tolist() == other[:512].tolist()
    assert not {*one[512:].tolist()} & {*other[512:].tolist()}
    save([first, second], tmp_path / "ours.jsonl")
    assert load(tmp_path / "ours.jsonl") == [first, second]
    (only,) = import_trace(path, first=1)
    assert seen(only) == (0.0, 600, 3)


def test_of_a_conversation_the_first_question_is_asked_at_a_random_time(write: Write) -> None:
    turns = ("human", "Why is that?"), ("gpt", "Because it is so."), ("human", "Really?")
    talk = {"conversations": [{"from": who, "value": said} for who, said in turns]}
    empty = {"conversations": talk["conversations"][:1]}
    path = write("talks.json", json.dumps([talk, empty, talk]))
    queries = import_trace(path, rate=2.0, seed=1)
    assert [query.rows for query in queries] == [("Why is that?",)] * 2
    assert {query.outputs for query in queries} == {(6,)}
    assert 0 < queries[0].arrival < queries[1].arrival
    assert queries == import_trace(path, rate=2.0, seed=1)
    assert queries != import_trace(path, rate=2.0, seed=2)


def test_what_cannot_be_read_is_named(write: Write) -> None:
    for name, text, message in cases(__file__, "refused"):
        with pytest.raises(TableError, match=re.escape(message)):
            import_trace(write(name, text))
