"""Texts by name, found by their words."""

from __future__ import annotations

import pytest

from relquery.errors import ConfigError, QueryError
from relquery.spans.corpus import Corpus, lookup, passages

CORPUS = Corpus(["the cat sat on the mat", "dogs bark", "a dog and a cat", "ünïcode fish"])


def test_texts_that_fit_best_come_first():
    assert CORPUS.search("dog cat", 2)[0] == "a dog and a cat"
    assert CORPUS.search("barking", 5) == ["dogs bark"]


@pytest.mark.parametrize(
    "query", ['"', "NEAR(", "a AND", "cat*", "text:cat", "-dog", "\0", "\ud800"]
)
def test_a_question_is_words_whatever_the_search_engine_means_by_them(query):
    CORPUS.search(query, 3)


def test_no_words_find_nothing():
    assert CORPUS.search("?!", 3) == []
    assert Corpus([]).search("cat", 3) == []


def test_a_long_question_is_no_trouble():
    words = " ".join(f"w{i}" for i in range(50_000))
    assert CORPUS.search(f"cat {words}", 1) != []


def test_texts_come_back_as_they_were():
    odd = "odd\0 \ud800 text"
    assert Corpus([odd]).search("text", 1) == [odd]


@pytest.mark.parametrize("given", ["text", 5, ["a", 5]])
def test_what_is_no_list_of_texts_is_refused(given):
    with pytest.raises(QueryError, match="corpus"):
        Corpus(given)


@pytest.mark.parametrize("given", [5, True, ["text"]])
def test_corpora_have_names(given):
    with pytest.raises(ConfigError, match=r"corpora is .*; it must be a dict"):
        lookup(given)


def test_a_function_is_a_corpus_too_and_is_cut_to_the_limit():
    find = lookup({"f": lambda query, limit: [query] * 5, "c": CORPUS, "l": ["x y"]})
    assert find("f", "q", 2) == ["q", "q"]
    assert find("c", "bark", 2) == ["dogs bark"]
    assert find("l", "y", 2) == ["x y"]


@pytest.mark.parametrize("found", ["text", None, [1, "a", None]])
def test_a_function_that_gives_something_else_is_an_error(found):
    with pytest.raises(QueryError, match="expected a list of texts"):
        lookup({"f": lambda query, limit: found})("f", "q", 2)


def test_a_document_is_cut_into_paragraphs():
    assert passages("\n a\nb\n\n \n\nc\n") == ["a\nb", "c"]
