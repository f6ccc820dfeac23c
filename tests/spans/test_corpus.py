"""Texts by name, found by their words."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from relquery.errors import ConfigError, QueryError
from relquery.spans.corpus import FullTextCorpus, lookup, passages

CORPUS = FullTextCorpus(["the cat sat on the mat", "dogs bark", "a dog and a cat", "ünïcode fish"])


def test_texts_that_fit_best_come_first() -> None:
    assert CORPUS.search("dog cat", 2)[0] == "a dog and a cat"
    assert CORPUS.search("barking", 5) == ["dogs bark"]


def test_a_question_is_words_whatever_the_search_engine_means_by_them() -> None:
    for query in ('"', "NEAR(", "a AND", "cat*", "text:cat", "-dog", "\0", "\ud800"):
        CORPUS.search(query, 3)
    assert CORPUS.search("?!", 3) == FullTextCorpus([]).search("cat", 3) == [], "no words"
    words = " ".join(f"w{i}" for i in range(50_000))
    assert CORPUS.search(f"cat {words}", 1) != [], "a long question"


def test_texts_come_back_as_they_were() -> None:
    odd = "odd\0 \ud800 text"
    assert FullTextCorpus([odd]).search("text", 1) == [odd]


def test_a_corpus_is_a_list_of_texts_and_corpora_have_names() -> None:
    no_texts: tuple[Any, ...] = ("text", 5, ["a", 5])
    for given in no_texts:
        with pytest.raises(QueryError, match="corpus"):
            FullTextCorpus(given)
    no_names: tuple[Any, ...] = (5, True, ["text"])
    for given in no_names:
        with pytest.raises(ConfigError, match=r"corpora is .*; it must be a dict"):
            lookup(given)


def test_a_function_is_a_corpus_too_and_is_cut_to_the_limit() -> None:
    find = lookup({"f": lambda query, limit: [query] * 5, "c": CORPUS, "l": ["x y"]})
    assert find("f", "q", 2) == ["q", "q"]
    assert find("c", "bark", 2) == ["dogs bark"]
    assert find("l", "y", 2) == ["x y"]


def test_a_function_that_gives_something_else_is_an_error() -> None:
    odd: tuple[Any, ...] = ("text", None, [1, "a", None])
    for find in (partial(_given, found) for found in odd):
        with pytest.raises(QueryError, match="expected a list of texts"):
            lookup({"f": find})("f", "q", 2)


def _given(found: Any, query: str, limit: int) -> Any:
    return found


def test_a_document_is_cut_into_paragraphs() -> None:
    assert passages("\n a\nb\n\n \n\nc\n") == ["a\nb", "c"]
