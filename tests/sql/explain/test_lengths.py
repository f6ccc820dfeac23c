"""How long answers are expected to be: by what is known, by their type, or by assumption."""

from __future__ import annotations

import json
from typing import Any

from relquery.prompt import Compared, Sampling
from relquery.sql.explain.cost import TEXT, Range, expected_length
from tests.cases import values


def words(text: str) -> int:
    return len(text)  # a character is a token


def of(sampling: Sampling, *known: int, wraps: bool = True) -> tuple[Range, str]:
    found = expected_length(sampling, words, known, wraps=wraps)
    return found.tokens, found.source


def test_labels_are_as_long_as_the_labels_in_json() -> None:
    labels = Sampling(labels=("Yes", "No", "Perhaps"))
    around = len('{"answer": ""}')
    assert of(labels) == (Range(around + 2, around + 4, around + 7), "type")
    assert of(labels, wraps=False) == (Range(2, 4, 7), "type")
    assert of(Sampling(labels=("Yes", "No"), scored=True)) == (Range(2, 2.5, 3), "type")


def test_a_schema_tells_how_long_answers_are() -> None:
    cases: list[tuple[dict[str, Any], int, int, int]] = values(__file__, "lengths.txt")
    for schema, low, expected, high in cases:
        wanted = (Range(low, expected, high), "type")
        assert of(Sampling(schema=json.dumps(schema))) == wanted, schema


def test_a_schema_that_refers_to_itself_ends() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    tokens, _ = of(Sampling(schema=json.dumps({"$ref": "#/$defs/node", "$defs": {"node": node}})))
    assert 0 < tokens.low < 200


def test_text_without_a_type_is_assumed() -> None:
    assert of(Sampling()) == (Range(TEXT.low, TEXT.expected, 256), "assumed")
    assert of(Sampling(max_tokens=20)) == (Range(1, 20, 20), "assumed")
    assert of(Sampling(max_tokens=4000))[0].high == 4000


def test_compared_answers_are_about_as_long_as_what_they_are_compared_with() -> None:
    assert of(Compared(texts=("Yes", "Never"))) == (Range(1, 6, 256), "type")


def test_known_answers_go_before_all_else() -> None:
    tokens, source = of(Sampling(labels=("Yes",)), *[10, 12, 14] * 20)
    assert source == "answers"
    assert tokens.expected == 12
    assert 11 < tokens.low < 12 < tokens.high < 13
    assert of(Sampling(), 30) == (Range(15, 30, 60), "answers")
