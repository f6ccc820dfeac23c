"""Groups that do not fit in a prompt are answered by a tree of calls, as EXPLAIN says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence

import pytest

from relquery.backends.base import Limits
from relquery.connection import Connection, connect
from relquery.errors import PartialResultWarning, RequestError
from relquery.prompt import Answer, Finish, Prompt, Sampling
from relquery.sql.inputs.forest import Forest
from tests.sql.fakes import FakeBackend, Fields, text_of

WORD = "w" * 9 + " "


class Narrow(FakeBackend):
    """A backend that counts ten characters as a token and has a short context."""

    tokens = 120

    @property
    def limits(self) -> Limits:
        return Limits(context=self.tokens)

    def prompt_tokens(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[int]:
        counts = [sum(len(text_of(span)) for span in prompt) // 10 + 1 for prompt in prompts]
        return [count if count < self.tokens else 0 for count in counts]


def concatenated(query: str, fields: Fields) -> str:
    """How many items there are, or the sum of such answers."""
    del query
    items = list(fields)
    if all(item.isdigit() for item in items):
        return str(sum(map(int, items)))
    return str(len(items))


@pytest.fixture
def backend() -> Narrow:
    return Narrow(concatenated)


@pytest.fixture
def con(backend: Narrow) -> Iterator[Connection]:
    with connect(backend, ledger=None) as connection:
        connection.database.execute(
            "CREATE TABLE t AS SELECT i % 3 AS k, 'text ' || i || repeat('x', i % 40) AS x "
            "FROM range(90) r(i)"
        )
        yield connection


QUERY = "SELECT k, AI_AGG('How many?', x, max_tokens := 4) AS n FROM t GROUP BY k ORDER BY k"


ALL = [(0, "30"), (1, "30"), (2, "30")]


def test_every_item_reaches_one_call_as_explain_says(con: Connection, backend: Narrow) -> None:
    (call,) = con.explain(QUERY).calls
    result = con.sql(QUERY)
    assert result.fetchall() == ALL
    assert call.counts == "exact"
    assert call.calls == result.report.calls == len(backend.asked) > 6
    assert result.report.stages[0].rows == 3
    sizes = backend.prompt_tokens([asked.prompt for asked in backend.asked], Sampling())
    assert min(sizes) > 0
    assert max(sizes) <= backend.tokens - 4


def test_an_item_that_does_not_fit_is_cut_and_loses_no_character(backend: Narrow) -> None:
    text = "".join(f"word{number} " for number in range(300))
    forest = Forest.of("How many?", [[json.dumps(text)]], Sampling(max_tokens=4), backend)
    pieces = [json.loads(item) for tree in forest.trees for item in tree.items]
    assert "".join(pieces) == text
    assert len(pieces) > 2


def test_a_part_without_an_answer_is_an_error_of_its_group_alone(backend: Narrow) -> None:
    def fails(query: str, fields: Fields) -> str | Answer:
        if any(item.startswith("text 30x") or item == "text 30" for item in fields):
            return Answer(None, Finish.ERROR, "out of spice")
        return concatenated(query, fields)

    backend.function = fails
    with connect(backend, ledger=None) as con:
        con.database.execute(
            "CREATE TABLE t AS SELECT i % 3 AS k, 'text ' || i AS x FROM range(90) r(i)"
        )
        with pytest.warns(PartialResultWarning, match="out of spice"):
            result = con.sql(QUERY)
    assert result.fetchall() == [(0, None), (1, "30"), (2, "30")]
    assert len(result.errors) == 1


def test_a_group_that_no_tree_can_answer_is_an_error_with_a_remedy(con: Connection) -> None:
    con.database.execute("INSERT INTO t VALUES (3, 'short')")
    query = QUERY.replace("max_tokens := 4", "max_tokens := 60")
    with pytest.warns(PartialResultWarning, match="Set max_tokens := ") as told:
        result = con.sql(query)
    assert result.fetchall() == [(0, None), (1, None), (2, None), (3, "1")]
    with pytest.raises(RequestError, match="does not fit in a prompt"):
        con.sql(query, on_error="raise")
    fits = re.search(r"max_tokens := (\d+)", str(told[0].message))
    assert fits is not None
    rows = con.sql(QUERY.replace("max_tokens := 4", f"max_tokens := {fits[1]}")).fetchall()
    assert rows == [*ALL, (3, "1")]


def test_a_second_run_finds_all_calls_in_the_ledger(backend: Narrow) -> None:
    with connect(backend) as con:
        con.database.execute(
            "CREATE TABLE t AS SELECT i % 3 AS k, 'text ' || i AS x FROM range(90) r(i)"
        )
        assert con.sql(QUERY).fetchall() == ALL
        calls = len(backend.asked)
        second = con.sql(QUERY)
        assert second.fetchall() == ALL
        assert (second.report.calls, second.report.ledger_hits) == (0, calls)
        assert len(backend.asked) == calls


def test_equal_groups_are_asked_once(con: Connection, backend: Narrow) -> None:
    con.database.execute("INSERT INTO t SELECT k + 3, x FROM t")
    (call,) = con.explain(QUERY.replace("FROM t", "FROM t WHERE k < 3")).calls
    assert [value for _, value in con.sql(QUERY).fetchall()] == ["30"] * 6
    assert len(backend.asked) == call.calls


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 50, 333])
def test_a_tree_reads_each_part_once_and_each_answer_once(count: int) -> None:
    backend = Narrow(concatenated)
    items = [json.dumps(WORD * (number % 7) + str(number)) for number in range(count)]
    forest = Forest.of("q", [items], Sampling(max_tokens=4), backend)
    assert [item for tree in forest.trees for item in tree.items] == items
    used = sum(size for _, size in forest._sized(items))
    parts = sum(1 for tree in forest.trees if tree.items)
    assert parts <= 2 * used / forest.room + 1, "two parts beside each other fit in one"
    read = [one for tree in forest.trees for one in tree.below]
    assert sorted([*read, *(at for at in forest.roots if at is not None)]) == list(
        range(len(forest.trees))
    )
    assert all(len(tree.below) <= forest.most_answers for tree in forest.trees)
    levels: Callable[[], Iterator[list[int]]] = forest.levels
    assert sorted(at for level in levels() for at in level) == list(range(len(forest.trees)))
