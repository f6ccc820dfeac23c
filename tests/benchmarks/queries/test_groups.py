"""Groups that do not fit in the context have answers, in the calls that EXPLAIN says."""

from __future__ import annotations

from benchmarks.queries.groups.aggregate import QUESTION, aggregate, in_groups
from benchmarks.queries.network import train
from benchmarks.queries.parts.groups import figures

TEXTS = ["The plot is thin, but the cast is fun.", "A long night.", "I laughed, and then I cried."]


def test_groups_have_so_many_characters() -> None:
    rows = in_groups(TEXTS, groups=3, characters=100)
    for group in range(3):
        texts = [row["review"] for row in rows if row["film"] == f"film {group}"]
        assert sum(map(len, texts)) == 100


def test_no_group_is_without_an_answer_and_the_calls_are_those_of_explain() -> None:
    rows = in_groups(TEXTS, groups=2, characters=2_500)
    spec = "random:layers=1,hidden=64,heads=2,context=1152"
    at = aggregate(train(spec, rows, [QUESTION], 512), rows)
    assert (at.groups, at.missing) == (2, 0)
    assert at.calls == at.said > 4
    assert all(figure.holds for figure in figures(at))
