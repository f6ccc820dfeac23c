"""An index is made once, found by a second process, and as good as an exact search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import Settings
from benchmarks.retrieval import sizes
from benchmarks.retrieval.benchmark import BENCHMARK
from benchmarks.retrieval.index.corpus import passages, questions, recall

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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "QUICK", replace(sizes.QUICK, passages=300, words=20, asked=12))
    settings = Settings(quick=True, data=tmp_path, parts=("index",), write=tmp_path)
    found = {figure.name: figure for figure in BENCHMARK.start(settings, lambda text: None)}
    assert found["index_made_again"].value == 0
    assert found["index_recall"].value == 1
    assert "at a small size" in found["index_seconds"].note
    page = (tmp_path / "retrieval.md").read_text(encoding="utf-8")
    assert "{" not in page, "all is filled in"
    assert "300 made-up passages of 20 words" in page
    made = [line.split(" | ")[3] for line in page.splitlines() if line.startswith("| ")]
    assert made[-2:] == ["1", "0"]
