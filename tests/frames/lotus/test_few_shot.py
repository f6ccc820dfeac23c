"""Few-shot examples are written below the instruction."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from relquery.errors import ConfigError
from tests.frames.model import says_yes
from tests.sql.fakes import FakeBackend

pytestmark = pytest.mark.usefixtures("configured")

COURSES: Any = pd.DataFrame({"name": ["Algebra", "Logic", "Cooking"], "year": [1, 2, 3]})


def test_a_filter_sees_rows_with_yes_or_no(backend: FakeBackend) -> None:
    examples = pd.DataFrame({"name": ["Why {name}?", None], "Answer": [True, False], "more": 1})
    kept = COURSES.sem_filter("{name} is hard", examples=examples)
    asked = (
        'Is this true? "name" is hard\n\nExamples:\n{"name": "Why {name}?"}\nAnswer: Yes\n'
        '{"name": null}\nAnswer: No'
    )
    assert {query.removesuffix("\nAnswer Yes or No.") for query in backend.queries} == {asked}
    hard = [name for name in COURSES["name"] if says_yes(asked, {"name": name})]
    assert kept["name"].tolist() == hard


def test_a_map_sees_rows_with_texts_of_the_columns_that_it_names(backend: FakeBackend) -> None:
    examples = pd.DataFrame({"year": [7], "name": ["Ünï"], "Answer": ["{so} it is"]})
    COURSES.sem_map("Say {name} of {year}", examples=examples)
    shown = '{"name": "Ünï", "year": 7}\nAnswer: {so} it is'
    assert {query for query in backend.queries if query.endswith(shown)} == set(backend.queries)


def test_a_join_takes_examples_without_sides(backend: FakeBackend) -> None:
    skills = pd.DataFrame({"skill": ["Math"]})
    examples = pd.DataFrame({"name": ["Algebra"], "skill": ["Math"], "Answer": ["yes"]})
    COURSES.sem_join(skills, "{name:left} helps with {skill:right}", examples=examples)
    shown = 'Examples:\n{"name": "Algebra", "skill": "Math"}\nAnswer: Yes\nAnswer Yes or No.'
    assert all(query.endswith(shown) for query in backend.queries)
    assert backend.queries


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (pd.DataFrame({"name": ["a"]}), "no column 'Answer'"),
        (pd.DataFrame({"title": ["a"], "Answer": [True]}), "no column 'name', which the instr"),
        (pd.DataFrame({"name": ["a"], "Answer": ["maybe"]}), "'maybe'; it must be Yes or No"),
        ([{"name": "a", "Answer": True}], "is a list. It must be a DataFrame"),
    ],
)
def test_examples_of_another_form_are_refused(examples: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"examples of sem_filter .*{message}"):
        COURSES.sem_filter("{name} is hard", examples=examples)
