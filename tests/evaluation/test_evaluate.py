"""A query is scored against right answers, as scikit-learn scores them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support

import relquery as rq
from relquery.connection import Connection, connect
from relquery.errors import ConfigError, QueryError
from relquery.evaluation.comparison import sign_test
from relquery.evaluation.evaluation import Evaluation
from relquery.prompt import Answer, Finish
from tests.cases import cases
from tests.sql.fakes import FakeBackend, Fields

LABELS = ["bug", "idea", "praise", "spam"]
ASK = "SELECT LLM('x', said) AS guess, truth FROM t"


def echo(query: str, fields: Fields) -> str | Answer:
    """Says what its field says; nothing for `silent`."""
    del query
    said = str(fields["said"])
    return Answer(None, Finish.ERROR, "no words") if said == "silent" else said


@pytest.fixture
def con() -> Iterator[Connection]:
    with connect(FakeBackend(echo), ledger=None) as connection:
        yield connection


def pairs(con: Connection, said: Sequence[Any], right: Sequence[Any]) -> None:
    """The table t of what will be said and what is right."""
    con.register("t", {"id": list(range(len(said))), "said": said, "truth": right})


def drawn(seed: int, count: int = 200) -> tuple[list[str], list[str]]:
    chance = random.Random(seed)
    right = chance.choices(LABELS[:3], [6, 3, 1], k=count)
    return [one if chance.random() < 0.6 else chance.choice(LABELS) for one in right], right


@pytest.mark.parametrize("seed", [0, *(pytest.param(i, marks=pytest.mark.long) for i in (1, 2, 3))])
def test_scores_are_those_of_scikit_learn(con: Connection, seed: int) -> None:
    said, right = drawn(seed)
    pairs(con, said, right)
    found = rq.evaluate(con, ASK, "truth")
    names = [one.label for one in found.labels]
    assert names == sorted({*said, *right})
    assert found.accuracy == pytest.approx(accuracy_score(right, said))
    scores = precision_recall_fscore_support(right, said, labels=names, zero_division=0)
    for at, one in enumerate(found.labels):
        mine = (one.precision or 0, one.recall or 0, one.f1, one.support)
        assert mine == pytest.approx(tuple(column[at] for column in scores))
    matrix = confusion_matrix(right, said, labels=names)
    assert [[found.confusion.get((a, b), 0) for b in names] for a in names] == matrix.tolist()
    assert found.macro_f1 == pytest.approx(scores[2].mean())


@pytest.mark.filterwarnings("ignore::relquery.errors.PartialResultWarning")
def test_a_row_without_an_answer_counts_and_is_never_right(con: Connection) -> None:
    pairs(con, ["a", "silent", "b", "a"], ["a", "a", "a", None])
    found = rq.evaluate(con, ASK, "truth")
    assert (found.rows, found.right, found.wrong, found.unanswered) == (3, 1, 1, 1)
    assert found.unknown == 1
    assert found.accuracy == pytest.approx(1 / 3)
    assert found.confusion == {("a", "a"): 1, ("a", None): 1, ("a", "b"): 1}
    assert found.labels[0].recall == pytest.approx(1 / 3)
    assert found.wrong_rows.fetchall() == [("b", "a")]
    assert found.unanswered_rows.fetchall() == [(None, "a")]
    assert found.unanswered_rows.reasons == {(0, 0): "no words"}
    assert "1 row without an answer: counted as not right." in repr(found)
    assert "no answer" in repr(found)


def test_texts_are_compared_as_they_are_unless_asked_otherwise(con: Connection) -> None:
    pairs(con, ["Yes.", " yes", "no", "No"], ["yes", "yes", "no", "yes"])
    assert rq.evaluate(con, ASK, "truth").right == 1
    loose = rq.evaluate(con, ASK, "truth", normalize=True)
    assert loose.right == 3
    assert [one.label for one in loose.labels] == ["no", "yes"]
    assert "Texts are compared without case" in repr(loose)
    first = rq.evaluate(con, ASK, "truth", normalize=lambda text: text.strip()[0])
    assert first.right == 2
    assert "after normalize= was applied to both" in repr(first)


def test_numbers_may_differ_by_the_tolerance_in_decimal_digits(con: Connection) -> None:
    pairs(con, ["0.4", "3", "nan", "7"], [0.3, 3.0, 1.0, 9.0])
    query = "SELECT id, said::DOUBLE AS guess, truth FROM t"
    exact = rq.evaluate(con, query, "truth", key="id")
    close = rq.evaluate(con, query, "truth", key="id", tolerance=0.1)
    assert (exact.right, close.right) == (1, 2)
    assert close.labels == ()
    assert "differ by at most 0.1" in repr(close)


def test_booleans_are_labels(con: Connection) -> None:
    pairs(con, ["Yes", "No", "Yes"], [True, True, False])
    query = "SELECT AI_FILTER('x', said) AS guess, truth FROM t"
    found = rq.evaluate(con, query, "TRUTH")
    assert found.confusion == {(True, True): 1, (True, False): 1, (False, True): 1}
    assert [one.label for one in found.labels] == [False, True]


def test_no_rows_have_no_accuracy(con: Connection) -> None:
    pairs(con, ["a"], ["a"])
    found = rq.evaluate(con, "SELECT said, truth FROM t WHERE id > 5", "truth")
    assert (found.accuracy, found.interval, found.macro_f1) == (None, None, None)
    assert repr(found) == "No row has a right answer"


def test_columns_that_do_not_fit_are_told(con: Connection) -> None:
    pairs(con, ["a", "b"], ["a", "b"])
    for query, options, message in cases(__file__, "misfits"):
        with pytest.raises(ConfigError, match=message):
            rq.evaluate(con, query, **({"truth": "truth"} | options))
    with pytest.raises(QueryError, match="the key 1 more than once"):
        rq.evaluate(con, "SELECT 1 AS k, said, truth FROM t", "truth", key="k")


def test_a_notebook_shows_labels_and_confusion_escaped(con: Connection) -> None:
    pairs(con, ["<b>", "c"], ["<b>", "<b>"])
    html = rq.evaluate(con, "SELECT said, truth FROM t", "truth")._repr_html_()
    assert html.count("<table>") == 2
    assert "<td>&lt;b&gt;</td>" in html
    assert "<b>" not in html


def test_wrong_arguments_are_told_before_anything_is_asked(con: Connection) -> None:
    pairs(con, ["a"], ["a"])
    query = "SELECT id, LLM('x', said) AS guess, truth FROM t"
    known: dict[str, Any] = {"con": con, "query": query, "truth": "truth", "prediction": "guess"}
    for change, message in cases(__file__, "wrong"):
        given = known | change
        if given["query"] == "con":
            given["query"] = con
        with pytest.raises((ConfigError, QueryError), match=message):
            rq.evaluate(**given)
    with pytest.raises(ConfigError, match="truth is missing"):
        rq.evaluate(con, "SELECT 1")
    assert isinstance(con.backend, FakeBackend)
    assert con.backend.asked == []


def test_the_columns_of_several_statements_are_found_when_they_have_run(con: Connection) -> None:
    pairs(con, ["a", "b"], ["a", "a"])
    query = "CREATE TABLE u AS SELECT * FROM t; SELECT LLM('x', said) AS guess, truth FROM u"
    assert rq.evaluate(con, query, "truth").right == 1


def test_a_query_that_is_wrong_is_told_as_by_the_connection(con: Connection) -> None:
    pairs(con, ["a"], ["a"])
    for query in ("SELECT nothing FROM t", "SELECT said,\n, , truth FROM t", ""):
        with pytest.raises(QueryError) as told:
            con.sql(query)
        with pytest.raises(QueryError) as same:
            rq.evaluate(con, query, "truth")
        assert str(same.value) == str(told.value)


# ---- two evaluations


def scored(con: Connection, said: str, right: str = "aaaabbbb", key: str = "id") -> Evaluation:
    rows = [{"id": at, "said": one, "truth": right[at]} for at, one in enumerate(said)]
    con.register("t", rows)
    return rq.evaluate(con, f"SELECT {key}, said, truth FROM t", "truth", key="id")


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
