"""Dependencies as written, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import ConfigError, UnknownColumnError
from relquery.reordering.dependencies import (
    Dependency,
    check_names,
    implied,
    parse_dependency,
)
from tests.cases import values

NAMES = "abcde"
ONE_WAY = st.lists(st.sampled_from(NAMES), min_size=2, max_size=4, unique=True).flatmap(
    lambda names: st.integers(1, len(names) - 1).map(
        lambda cut: Dependency(tuple(names[:cut]), tuple(names[cut:]))
    )
)


def written(given: str | Sequence[str] | Dependency) -> list[str]:
    return [str(dependency) for dependency in parse_dependency(given)]


FORMS: list[tuple[Any, list[str]]] = values(__file__, "forms.txt")


def test_each_form_of_writing_says_which_way_it_goes() -> None:
    for form, expected in FORMS:
        assert written(form) == expected


def test_names_in_a_sequence_are_taken_as_they_are() -> None:
    assert parse_dependency((" a", "b,c"))[0] == Dependency((" a",), ("b,c",))


@given(ONE_WAY)
def test_a_dependency_reads_back_as_it_is_written(dependency: Dependency) -> None:
    assert parse_dependency(str(dependency)) == (dependency,)
    assert parse_dependency(dependency) == (dependency,)


UNREADABLE: list[tuple[Any, str]] = values(__file__, "unreadable.txt")


def test_what_cannot_be_read_is_refused_with_the_form_to_write() -> None:
    for text, message in UNREADABLE:
        with pytest.raises(ConfigError, match=message):
            parse_dependency(text)


def test_a_dependency_that_exists_is_well_formed() -> None:
    for left, right in (((), "a"), ("a", ()), ("a", ("",))):
        with pytest.raises(ConfigError):
            Dependency(tuple(left), tuple(right))


@given(st.lists(ONE_WAY, max_size=6))
def test_a_column_implies_what_repeated_steps_reach(dependencies: list[Dependency]) -> None:
    table = implied(NAMES, dependencies)
    for a, start in enumerate(NAMES):
        reached = {start}
        for _ in NAMES:
            for dependency in dependencies:
                if len(dependency.determinants) == 1 and dependency.determinants[0] in reached:
                    reached.update(dependency.dependents)
        assert {NAMES[b] for b in np.flatnonzero(table[a])} == reached


def test_of_columns_with_one_name_the_first_is_meant() -> None:
    table = implied(["x", "y", "x"], parse_dependency("x, y"))
    assert table.tolist() == [[True, True, False], [True, True, False], [False, False, True]]


def test_an_unknown_column_names_the_nearest() -> None:
    with pytest.raises(UnknownColumnError, match="Did you mean 'title'"):
        implied(["title", "year"], parse_dependency("titel -> year"))
    with pytest.raises(UnknownColumnError, match="Did you mean 'year'"):
        check_names(["title", "year"], ["title", "yaer"])
