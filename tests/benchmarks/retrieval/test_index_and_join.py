"""An index is made once, found by a second process, and as good as an exact search; a join by
blocking asks about few pairs, and finds nearly all that the full join finds.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from benchmarks.retrieval import sizes
from benchmarks.retrieval.benchmark import BENCHMARK
from benchmarks.retrieval.index import passages, questions, recall
from benchmarks.retrieval.join import (
    CHANGES,
    LEFT,
    NEAR_MISSES,
    RIGHT,
    SHARED,
    SWEEP,
    Blocked,
    Joined,
    at_threshold,
    companies,
    figures,
    join,
)
from tests.benchmarks.conftest import Quick

TEXTS = ["red apple tart", "red apple pie", "green pear", "tart green apple"]


def test_recall_counts_ranks_with_the_best_score_and_takes_either_of_equal_texts() -> None:
    assert recall(TEXTS, ["pear", "tart red"], [["green pear"], ["red apple tart"]]) == 1
    assert recall(TEXTS, ["pear"], [["red apple pie"]]) == 0
    assert recall(TEXTS, ["red tart"], [["red apple tart", "green pear"]]) == 0.5
    twins = ["red pie", "pie red"]
    assert recall(twins, ["red"], [[twins[1], twins[0]]]) == 1


def test_passages_have_so_many_words_and_questions_words_of_one() -> None:
    corpus = passages(200, 30, seed=3)
    assert corpus == passages(200, 30, seed=3)
    assert corpus != passages(200, 30, seed=4)
    texts = [text.split() for text in corpus["text"].to_pylist()]
    assert {len(words) for words in texts} == {30}
    words = [word for text in texts for word in text]
    assert 0.05 < words.count("word0") / len(words) < 0.13, "by Zipf's law 1 in 11.4"
    for question in questions(corpus, 5, seed=3)["question"].to_pylist():
        own = question.split()[:8]
        assert any(all(own.count(word) <= text.count(word) for word in own) for text in texts)


def test_a_second_process_finds_the_index_that_the_first_made(
    quick: Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "QUICK", replace(sizes.QUICK, passages=300, words=20, asked=12))
    found, page = quick(BENCHMARK, "index")
    assert found["index_made_again"].value == 0
    assert found["index_recall"].value == 1
    assert "at a small size" in found["index_seconds"].note
    assert "300 made-up passages of 20 words" in page
    made = [line.split(" | ")[3] for line in page.splitlines() if line.startswith("| ")]
    assert made[-2:] == ["1", "0"]


def test_companies_are_known_pairs_others_and_near_misses() -> None:
    for seed in range(20):
        known = companies(seed)
        assert (len(set(known.left)), len(set(known.right))) == (LEFT, RIGHT)
        left, right = ({pair[at] for pair in known.same} for at in (0, 1))
        assert left <= set(known.left)
        assert right <= set(known.right)
        assert len(left) == len(right) == len(known.same) == SHARED
        firsts = {name.split()[0] for name in known.left}
        others = set(known.right) - right
        assert sum(name.split()[0] in firsts for name in others) == NEAR_MISSES
    assert companies(3) == companies(3) != companies(4)


def test_every_change_spells_a_name_differently() -> None:
    changed = {change(Random(0), "Marlow", "Motors") for change in CHANGES}
    assert len(changed) == len(CHANGES)
    assert "Marlow Motors" not in changed


def test_near_pairs_are_the_only_ones_that_are_asked_about() -> None:
    known = companies(0)
    whole, near, none = join(known), join(known, 0.3), join(known, 0.999)
    assert (whole.calls, whole.pairs) == (LEFT * RIGHT, known.same)
    assert 0 < near.calls < whole.calls / 4
    assert near.pairs <= whole.pairs
    assert none.calls < near.calls
    assert none.share(whole) < near.share(whole)


def test_the_worst_tables_are_judged() -> None:
    pairs = [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]
    whole = Joined(1200, frozenset(pairs))
    good, bad = Joined(20, frozenset(pairs)), Joined(400, frozenset(pairs[:1]))
    found = [Blocked(whole, dict.fromkeys(SWEEP, each), 4) for each in (good, bad)]
    assert at_threshold(0.5, found) == ([20, 400], [1, 0.25])
    judged = {figure.name: (figure.value, figure.holds) for figure in figures(found)}
    assert judged["join_calls"] == (400, False)
    assert judged["join_pairs"][0] == 0.25
    assert judged["join_full_right"][1]


def test_a_run_judges_the_stated_threshold_and_shows_the_others(
    quick: Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "QUICK", replace(sizes.QUICK, tables=1))
    found, page = quick(BENCHMARK, "join")
    assert all(figure.holds is not None for figure in found.values())
    assert "| **0.2** | " in page
    assert "AI_SIMILARITY(a.name, b.name) > 0.2 AND AI_FILTER(" in page
    assert page.count("| 0.") == len(SWEEP) - 1
