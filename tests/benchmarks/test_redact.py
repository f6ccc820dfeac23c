"""The benchmark of the rules for personal data counts what it says."""

from __future__ import annotations

from benchmarks.redact.benchmark import BENCHMARK, SENTENCES, Counts, counted, covers
from benchmarks.redact.sentences import Sentence, by_hand, drawn
from relquery.pii.patterns import Finding
from tests.benchmarks.conftest import Quick


def test_all_figures_are_judged_at_the_small_size(quick: Quick) -> None:
    figures, page = quick(BENCHMARK)
    judged = [figure for figure in figures.values() if figure.goal is not None]
    assert len(judged) == 24
    assert all(figure.value is not None for figure in judged)
    assert "| by hand |" in page


def test_sentences_are_500_of_three_languages_with_all_kinds_and_both_sorts_of_names() -> None:
    written = by_hand()
    sentences = [*written, *drawn(SENTENCES - len(written), 0)]
    assert len(sentences) == 500
    assert {one.language for one in sentences} == {"en", "de", "fr"}
    assert len({label.kind for one in sentences for label in one.labels}) == 12
    assert sum(one.listed for one in sentences) > 150
    for one in sentences:
        assert all(one.text[label.start : label.end].strip() for label in one.labels)
        assert "{" not in one.text


def test_a_part_that_is_found_is_no_recall_but_right() -> None:
    counts: dict[str, Counts] = {}
    text = "Ask Mrs Berger at 12 Oak Lane."
    whole = Sentence("en", text, (Finding(0, 14, "NAME"), Finding(18, 29, "ADDRESS")))
    counted(whole, counts)
    assert (counts["NAME"].recalled, counts["NAME"].right, counts["NAME"].found) == (0, 1, 1)
    assert (counts["ADDRESS"].recall, counts["ADDRESS"].precision) == (1, 1)
    assert covers([Finding(0, 3, "NAME"), Finding(3, 9, "NAME")], Finding(1, 9, "NAME"))
    assert not covers([Finding(0, 3, "NAME"), Finding(4, 9, "NAME")], Finding(1, 9, "NAME"))
