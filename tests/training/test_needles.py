"""Names hidden in hay, and how the demo model finds them."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from relquery.demo import model_path
from relquery.ir.lower import lower
from relquery.ir.nodes import Bag, Seq, Text
from training.domains.split import Split
from training.lessons.lessons import END, MOST_NAMES, needle_lessons
from training.lessons.needles import (
    AFTER,
    BEFORE,
    HAY,
    NAMES,
    listed,
    names_in,
    needle_texts,
    question,
)

HAY_WORDS = frozenset(HAY)


@pytest.mark.parametrize("hay_words", [0, 1, 7, 48])
def test_a_text_is_one_name_among_words_of_hay_and_no_name_comes_twice(hay_words: int) -> None:
    texts = needle_texts(Random(1), 8, hay_words)
    names = names_in(" ".join(texts))
    assert len(texts) == len(set(names)) == 8
    for text, name in zip(texts, names, strict=True):
        words = text.split()
        words.remove(name)
        assert len(words) == hay_words
        assert set(words) <= set(HAY)


def test_no_text_that_is_asked_about_can_occur_in_training() -> None:
    assert all(Split.HELD_OUT.owns(text) for text in needle_texts(Random(5), 40, 6))
    for lesson in islice(needle_lessons(Random(5), 32), 300):
        pieces = lesson[0].text.split(BEFORE)[1].split(AFTER, maxsplit=1)[0].split("\n")
        texts = [piece for piece in pieces if not HAY_WORDS.isdisjoint(piece.split())]
        assert all(Split.TRAIN.owns(text) for text in texts)


def test_the_question_is_the_text_that_a_span_query_sends() -> None:
    pieces = ["hay Anna", "Boris, Clara"]
    bag = Bag(tuple(Text(piece) for piece in pieces), separator="\n")
    spans = lower(Seq((Text(BEFORE), bag, Text(AFTER))))
    assert "".join(str(span.content) for span in spans) == question(pieces)


def test_needle_lessons_learn_the_names_of_texts_and_of_lists_in_their_order() -> None:
    numbers: dict[bool, set[int]] = {True: set(), False: set()}
    for lesson in islice(needle_lessons(Random(1), 24), 500):
        (prompt, asked, _), (answer, learned, _) = lesson
        names = names_in(prompt)
        assert (asked, learned) == (False, True)
        assert answer == listed(names) + END
        assert len(names) == len(set(names))
        numbers[not HAY_WORDS.isdisjoint(prompt.split())].add(len(names))
    assert numbers[True] == set(range(1, MOST_NAMES + 1))
    assert numbers[False] == set(range(2, MOST_NAMES + 1))


def test_a_name_is_one_token_wherever_it_stands_and_so_is_a_word_of_hay() -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_path())
    whole = [*NAMES, *(f" {word}" for word in (*NAMES, *HAY))]
    assert [text for text in whole if len(tokenizer(text)["input_ids"]) != 1] == []


def test_the_model_finds_all_names_at_once_in_little_hay_and_by_pairs_in_much() -> None:
    pytest.importorskip("torch")
    from training.hay import needle_shares

    shares = needle_shares(model_path(), (4, 48), cases=10, seed=3)
    assert min(shares[4].values()) >= 0.8
    assert shares[48]["tree"] >= 0.8
    assert shares[48]["flat"] < 0.5
