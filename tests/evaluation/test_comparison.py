"""Two evaluations of the same rows are compared row by row."""

from __future__ import annotations

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
    return rq.evaluate(con, f"SELECT {key}, said, truth FROM t", "truth", key=key)


@pytest.fixture
def con() -> Connection:
    return connect(FakeBackend(upper_or_length), ledger=None)


@pytest.mark.parametrize(("one", "other"), [(0, 0), (1, 0), (3, 9), (12, 12), (40, 71), (0, 900)])
def test_p_is_that_of_the_exact_binomial_test(one: int, other: int) -> None:
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


def test_without_a_key_rows_are_not_paired(con: Connection) -> None:
    con.register("t", {"said": ["a"], "truth": ["a"]})
    found = rq.evaluate(con, "SELECT said, truth FROM t", "truth")
    with pytest.raises(ConfigError, match="Give key="):
        found.compare(found)


@pytest.mark.parametrize("other", ["x", None])
def test_only_evaluations_are_compared(con: Connection, other: object) -> None:
    found = scored(con, "aa")
    with pytest.raises(ConfigError, match=r"must get another evaluation. Write first.compare\("):
        found.compare(other)  # type: ignore[arg-type]
