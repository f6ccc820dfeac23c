"""Results are as LOTUS 1.2.4 gives them, also with examples and cascades."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from relquery.connection import connect
from relquery.errors import ConfigError
from relquery.frames import lotus
from relquery.frames.lotus.models import LM
from relquery.frames.lotus.types import CascadeArgs
from relquery.prompt import Answer, Finish
from tests.frames.model import says_yes
from tests.sql.fakes import FakeBackend, Fields

pytestmark = pytest.mark.usefixtures("configured")

LEFT: Any = pd.DataFrame({"a": ["one", "two", "six"], "n": [1, 2, 3]}, index=[10, 20, 30])
RIGHT: Any = pd.DataFrame({"b": ["oneness", "twofold"], "m": [1.5, 2.5]}, index=["x", "y"])


def test_a_similarity_join_has_the_left_index_and_the_score_between_the_sides() -> None:
    found = LEFT.sem_sim_join(RIGHT, left_on="a", right_on="b", K=2)
    assert found.index.tolist() == [10, 10, 20, 20, 30, 30]
    assert list(found.columns) == ["a", "n", "_scores", "b", "m"]
    assert found["_scores"].dtype == "float32"
    assert found[["n", "m"]].dtypes.tolist() == [LEFT["n"].dtype, RIGHT["m"].dtype]
    assert found["b"].tolist()[::2] == ["oneness", "twofold", "oneness"]


def test_a_similarity_join_keeps_both_indexes_if_it_is_told_to() -> None:
    found = LEFT.sem_sim_join(RIGHT, "a", "b", 1, "", "", "_x", True)
    assert list(found.columns) == ["a", "n", "_left_id", "_right_id", "_scores_x", "b", "m"]
    assert found["_left_id"].tolist() == [10, 20, 30]
    assert found["_right_id"].tolist() == ["x", "y", "x"]


def test_a_similarity_join_with_itself_has_the_suffixes() -> None:
    found = LEFT.sem_sim_join(LEFT, "a", "a", 1, lsuffix="_l", rsuffix="_r")
    assert list(found.columns) == ["a_l", "n_l", "_scores", "a_r", "n_r"]
    assert found["a_l"].tolist() == found["a_r"].tolist()
    with pytest.raises(ConfigError, match="both sides have the column 'a'"):
        LEFT.sem_sim_join(LEFT, "a", "a", 1)


def test_scores_of_a_search_are_float32_behind_the_columns() -> None:
    found = LEFT.sem_search("a", "one", 2, None, True)
    assert list(found.columns) == ["a", "n", "vec_scores_sim_score"]
    assert found["vec_scores_sim_score"].dtype == "float32"
    assert found.index[0] == 10


@pytest.mark.parametrize("name", ["_filter", "_Filter"])
def test_a_filter_that_keeps_all_rows_keeps_a_column_of_the_same_name(name: str) -> None:
    table: Any = LEFT.assign(**{name: "mine", "_filter_1": "mine"})
    found = table.sem_filter("{a} is odd", return_all=True)
    assert found[[name, "_filter_1"]].eq("mine").all(axis=None)
    new = "_filter_2" if name == "_filter" else "_filter"
    assert list(found.columns) == [*table.columns, new]
    yes = [says_yes('Is this true? "a" is odd', {"a": a}) for a in LEFT["a"]]
    assert found[new].tolist() == yes
    assert found.index.tolist() == [10, 20, 30]


def test_a_map_replaces_a_column_of_the_same_name_and_no_other() -> None:
    table: Any = LEFT.assign(_map="mine", _Other="mine")
    found = table.sem_map("Say {a}")
    assert list(found.columns) == list(table.columns)
    assert not found["_map"].eq("mine").any()
    other = table.sem_map("Say {a}", suffix="_other")
    assert list(other.columns) == [*table.columns, "_other"]
    assert other["_Other"].eq("mine").all()


def test_groups_have_the_answer_first_and_no_group_of_missing_keys() -> None:
    table: Any = pd.DataFrame({"a": list("abcd"), "cat": ["y", None, "x", "y"], "n": [1, 2, 1, 1]})
    found = table.sem_agg("Sum {a} up", group_by=["cat", "n"])
    assert list(found.columns) == ["_output", "cat", "n"]
    assert found.index.tolist() == [0, 0]
    assert found["cat"].tolist() == ["x", "y"]
    assert table.sem_agg("Sum {a} up", group_by="cat")["cat"].tolist() == ["x", "y"]
    best = table.sem_topk("Which {a} is best?", 2, group_by=["cat"])
    assert best.index.tolist() == [0, 0, 1]
    assert best["cat"].tolist() == ["x", "y", "y"]
    assert list(best.columns) == ["a", "cat", "n"]


def test_only_verbs_that_have_stats_in_lotus_return_them() -> None:
    joined = LEFT.sem_join(RIGHT, "{a} is {b}", return_stats=True)
    assert isinstance(joined, pd.DataFrame)
    best, stats = LEFT.sem_topk("Which {a} is best?", 1, return_stats=True)
    assert len(best) == 1
    assert stats.keys() == {"total_tokens", "total_llm_calls", "explanations"}
    assert stats["total_llm_calls"] == 3
    kept, _ = LEFT.sem_filter("{a} is odd", return_stats=True)
    assert isinstance(kept, pd.DataFrame)


TABLE = pd.DataFrame({"t": [f"row {at}" for at in range(300)]})
VERB = "sem_filter"
ARGS = CascadeArgs(recall_target=0.8, precision_target=0.8, failure_probability=0.1)


def is_even(query: str, fields: Fields) -> str:
    return "No" if int(fields["t"].split()[1]) % 2 else "Yes"


def guess(query: str, fields: Fields) -> Answer:
    yes = 0.99 if is_even(query, fields) == "Yes" else 0.01
    scores = {"Yes": math.log(yes), "No": math.log(1 - yes)}
    return Answer("Yes" if yes > 0.5 else "No", Finish.STOP, scores=scores)


@pytest.fixture
def strong() -> Iterator[FakeBackend]:
    backend, helper = FakeBackend(is_even, "strong"), FakeBackend(guess, "helper")
    with connect(backend, form="json", progress=False) as con:
        lm, helping = LM(model=con), LM(model=connect(helper, form="json", progress=False))
        with lotus.settings.context(lm=lm, helper_lm=helping):
            yield backend


def test_a_filter_asks_the_helper_first(strong: FakeBackend) -> None:
    found, stats = getattr(TABLE, VERB)("{t} is even", cascade_args=ARGS, return_stats=True)

    assert len(strong.asked) < 0.7 * len(TABLE)
    assert stats["total_llm_calls"] == len(strong.asked) + len(TABLE)
    assert found["t"].tolist() == TABLE["t"][::2].tolist()


def test_a_cascade_needs_a_helper(strong: FakeBackend) -> None:
    with (
        lotus.settings.context(helper_lm=None),
        pytest.raises(ConfigError, match="none is configured"),
    ):
        getattr(TABLE, VERB)("{t} is even", cascade_args=ARGS)


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
