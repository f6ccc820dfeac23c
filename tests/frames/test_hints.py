"""A name that a frame does not have is an error that says what to write."""

from __future__ import annotations

import copy
import re

import pytest

from relquery.connection import Connection
from relquery.errors import ConfigError, UnknownVerbError
from relquery.frames.frame import Frame, frame
from relquery.frames.hints import _INSTEAD, no_such
from tests.cases import case_file

FILMS = [{"title": "Alien", "year": 1979}]


@pytest.fixture
def films(con: Connection) -> Frame:
    return frame(FILMS, con)


def test_an_attribute_that_is_missing_names_the_one_to_use(films: Frame) -> None:
    for name, remedy in case_file(__file__, "hints.txt"):
        with pytest.raises(UnknownVerbError, match=re.escape(remedy)):
            getattr(films, name)
        assert not hasattr(films, name)


def test_each_remedy_is_a_verb_of_a_frame() -> None:
    for name in _INSTEAD:
        assert not hasattr(Frame, name)
        verbs = re.findall(r"\bf\.(\w+)", no_such(name, (), ()))
        assert verbs
        assert all(hasattr(Frame, verb) for verb in verbs)


def test_a_frame_can_be_copied_and_is_true(films: Frame) -> None:
    assert copy.copy(films).collect() == FILMS
    assert bool(films)
    assert not hasattr(films, "__array__")


def test_items_and_rows_are_refused_with_what_to_write(films: Frame) -> None:
    with pytest.raises(ConfigError, match=r"f.select\('title'\)"):
        films["title"]
    with pytest.raises(ConfigError, match=r"f.select\('title', 'year'\)"):
        films[["title", "year"]]
    with pytest.raises(ConfigError, match=r"f.limit\(10, offset=20\) for a slice"):
        films[1:3]
    for use in (len, list, lambda lazy: "Alien" in lazy):
        with pytest.raises(ConfigError, match=r"no rows before it runs. Write f.collect\(\)"):
            use(films)
