"""Programs are run, killed and run again; their rows and requests are compared."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.harness import Figure
from benchmarks.peers import model
from benchmarks.peers.environments import Side
from benchmarks.peers.figures import figures
from benchmarks.peers.programs import questions
from benchmarks.peers.provider import Trouble, ends_badly
from benchmarks.peers.run import Measured, compared, measure
from benchmarks.peers.tasks import AGAIN, ASKED, TROUBLED, Course, Task, right

CLIENT = Side("client", "tests.benchmarks.peers.client", Path(sys.executable))
COUNT = 88  # a tenth of the first 80 is added
ROWS = [
    {"id": str(at), "reviewcontent": f"review {at} of all", "movietitle": "Up", "movieinfo": "It."}
    for at in range(COUNT)
]


def test_there_are_eleven_tasks() -> None:
    assert len({task.name for task in (*ASKED, *AGAIN, *TROUBLED)}) == 11


def test_a_run_gives_each_row_its_value_and_counts_each_request() -> None:
    found = measure(CLIENT, Task("map", ""), ROWS)
    assert (found.requests, found.refused, found.repeated) == (80, 0, 0)
    assert len(found.held) == len(found.prompts) == 80
    assert not found.wrong
    assert not found.lost
    assert 1 < found.peak <= 16


def test_a_killed_program_with_a_store_asks_again_what_was_in_flight_at_most() -> None:
    found = measure(CLIENT, Task("killed", "", course=Course.KILLED), ROWS)
    assert len(found.held) == 80
    assert 80 <= sum(found.runs) == found.requests <= 80 + 2 * 16
    assert found.runs[0] >= 40


def test_a_killed_program_without_a_store_asks_everything_again() -> None:
    task = Task("killed", "", "duplicates", course=Course.KILLED)
    found = measure(CLIENT, task, ROWS)
    assert found.runs[1] == 80


def test_a_grown_table_is_asked_for_its_new_rows_and_nothing_at_a_new_address() -> None:
    found = measure(CLIENT, Task("grown", "", course=Course.GROWN), ROWS)
    assert found.runs == (8, 0)
    assert len(found.held) == COUNT


def test_a_program_that_fails_loses_its_rows_and_says_why() -> None:
    found = measure(CLIENT, Task("groups", "", "groups"), ROWS)
    assert found.error == "ValueError: no rows of groups"
    assert (set(found.held), set(found.lost)) == (set(), {"Up"})


def test_rows_without_an_answer_should_have_no_value() -> None:
    task = Task("bad rows", "", trouble=Trouble.ROWS)
    bad = {row["id"] for row in ROWS if ends_badly(row["reviewcontent"]) is not None}
    assert bad
    assert right(task, ROWS).keys() == {row["id"] for row in ROWS} - bad
    found = measure(CLIENT, task, ROWS)
    assert found.wrong <= bad  # this client takes what is cut off for an answer
    assert not found.lost


def test_only_rows_that_pass_a_filter_have_a_value() -> None:
    passing = {row["id"] for row in ROWS if model.recommends(row["reviewcontent"])}
    found = right(Task("filter", "", "filter"), ROWS)
    assert found.keys() == passing
    sentences = {model.sentence(questions.MAP, row["reviewcontent"]) for row in ROWS}
    assert set(found.values()) <= sentences


def test_values_are_compared_as_text_and_structs_by_field() -> None:
    expected = {"a": "x", "b": {"mood": "sad", "stars": 3}, "c": "y", "d": "z"}
    found = {"a": " x\n", "b": {"mood": "sad", "stars": "3"}, "c": "w", "e": "x"}
    assert [*map(set, compared(expected, found))] == [{"a", "b"}, {"c", "e"}, {"d"}]
    assert compared({"b": {"mood": "sad"}}, {"b": {}})[1] == frozenset("b")


def side(
    requests: int, held: str, wrong: str = "", cpu: float = 1.0, error: str | None = None
) -> Measured:
    lost = frozenset("abc") - set(held) - set(wrong)
    rows = frozenset(held), frozenset(wrong), lost
    return Measured(requests, 0, 0, (), *rows, 1.0, cpu, cpu, 1, error)


def by_name(ours: Measured, lotus: Measured, daft: Measured) -> dict[str, Figure]:
    by = {"relquery": ours, "LOTUS": lotus, "Daft": daft}
    tokens = {"relquery": 90, "LOTUS": 200, "Daft": 100}
    found = figures(ASKED[0], by, tokens)
    return {figure.name.removeprefix("map: "): figure for figure in found}


def test_ours_is_compared_with_the_peer_that_needs_least() -> None:
    found = by_name(side(10, "abc"), side(20, "abc", cpu=4.0), side(8, "abc", cpu=2.0))
    assert found["requests over the better peer's"].value == 10 / 8
    assert found["requests over the better peer's"].holds is False
    assert found["tokens over the better peer's"].value == 0.9
    assert found["client CPU over the better peer's"].value == 0.5


def test_a_peer_without_all_rows_that_we_have_is_not_the_better() -> None:
    found = by_name(side(10, "abc"), side(20, "abc"), side(2, "ab"))
    assert found["requests over the better peer's"].value == 0.5
    alone = by_name(side(10, "abc"), side(20, ""), side(2, "ab"))
    assert alone["requests over the better peer's"].verdict == "not measured"


@pytest.mark.parametrize(
    ("ours", "behind"), [(side(1, "abc"), 0), (side(1, "a"), 1), (side(1, "ab", "d"), 1)]
)
def test_rows_that_a_peer_has_and_wrong_ones_count(ours: Measured, behind: int) -> None:
    found = by_name(ours, side(1, "a"), side(1, "ab"))
    assert found["rows wrong, or lost that a peer has"].value == behind


def test_none_against_none_is_no_more() -> None:
    found = by_name(side(0, "abc"), side(0, "abc"), side(5, "abc"))
    assert found["requests over the better peer's"].value == 1.0
