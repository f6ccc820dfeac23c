"""Two evaluations of the same rows are compared row by row."""

from __future__ import annotations

from typing import Any

import pytest
from scipy.stats import binomtest

import relquery as rq
from relquery.connection import Connection, connect
from relquery.errors import ConfigError, QueryError
from relquery.evaluation.comparison import sign_test
from relquery.evaluation.evaluation import Evaluation
from tests.sql.conftest import upper_or_length
from tests.sql.fakes import FakeBackend


def scored(con: Connection, said: str, right: str = "aaaabbbb", key: str = "id") -> Evaluation:
    rows = [{"id": at, "said": one, "truth": right[at]} for at, one in enumerate(said)]
    con.register("t", rows)
    return rq.evaluate(con, f"SELECT {key}, said, truth FROM t", "truth", key="id")


@pytest.fixture
def con() -> Connection:
    return connect(FakeBackend(upper_or_length), ledger=None)


def test_p_is_that_of_the_exact_binomial_test() -> None:
    for one, other in ((0, 0), (1, 0), (3, 9), (12, 12), (40, 71), (0, 900)):
        exact = binomtest(one, one + other, 0.5).pvalue if one + other else 1.0
        assert sign_test(one, other) == pytest.approx(exact, rel=1e-9, abs=1e-300)


def test_rows_are_paired_by_key(con: Connection) -> None:
    found = scored(con, "aaabbbaa").compare(scored(con, "aaaabbbb"))
    assert (found.both, found.neither, found.rows, found.apart) == (5, 0, 8, 0)
    assert (found.gained, found.lost) == (((3,), (6,), (7,)), ())
    assert found.accuracies == (5 / 8, 1.0)
    assert found.difference == pytest.approx(3 / 8)
    assert found.p_value == pytest.approx(0.25)
    assert "accuracy 0.625 and 1.000 (+0.375) on 8 rows" in repr(found)
    assert found._repr_html_().count("<td") == 6


def test_the_other_way_round_gains_are_losses(con: Connection) -> None:
    first, second = scored(con, "aaabbbaa"), scored(con, "abaabbba")
    one, other = first.compare(second), second.compare(first)
    assert (one.gained, one.lost) == (other.lost, other.gained)
    assert one.p_value == other.p_value


def test_rows_of_only_one_are_told_and_not_compared(con: Connection) -> None:
    found = scored(con, "aaaa").compare(scored(con, "aaaabb"))
    assert (found.rows, found.apart) == (4, 2)
    assert "2 rows are in only one" in repr(found)


def test_the_right_answers_must_be_the_same(con: Connection) -> None:
    with pytest.raises(QueryError, match="right answer of the key 1 is 'a' in one"):
        scored(con, "aa").compare(scored(con, "aa", right="ab"))


def test_only_evaluations_with_a_key_are_compared(con: Connection) -> None:
    con.register("t", {"said": ["a"], "truth": ["a"]})
    without = rq.evaluate(con, "SELECT said, truth FROM t", "truth")
    with pytest.raises(ConfigError, match="Give key="):
        without.compare(without)
    with pytest.raises(ConfigError, match="No key is in both"):
        scored(con, "a").compare(scored(con, "b", key="id + 5 AS id"))
    found = scored(con, "aa")
    others: list[Any] = ["x", None]
    said = r"must get another evaluation. Write first.compare\("
    for other in others:
        with pytest.raises(ConfigError, match=said):
            found.compare(other)
