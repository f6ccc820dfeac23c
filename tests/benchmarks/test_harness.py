"""Benchmarks say what was measured, against which goal, and on what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.catalogue import BENCHMARKS
from benchmarks.harness import Benchmark, Figure, Settings, document, find, too_small
from relquery.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "at_least", "holds"),
    [(2.0, True, True), (1.9, True, False), (2.0, False, True), (2.1, False, False)],
)
def test_a_figure_holds_on_its_side_of_the_goal(value: float, at_least: bool, holds: bool) -> None:
    assert Figure("x", value, 2.0, at_least).holds is holds


def test_a_figure_that_could_not_be_measured_neither_holds_nor_fails() -> None:
    figure = Figure("x", None, 2.0, note="the table is absent")
    assert figure.to_dict() == {
        "value": None,
        "goal": ">= 2",
        "holds": None,
        "verdict": "not measured",
        "note": "the table is absent",
    }


def test_a_figure_without_a_goal_is_reported() -> None:
    figure = Figure("x", 3.0, None)
    assert figure.holds is None
    assert (figure.shown_goal, figure.verdict) == ("-", "reported")


def test_a_small_run_judges_what_holds_at_any_size_alone() -> None:
    large, always = Figure("x", 3.0, 2.0), Figure("y", 3.0, 2.0, any_size=True)
    assert too_small(large).holds is None
    assert "3 at a small size" in too_small(large).note
    assert too_small(always).holds is True


def test_the_document_names_command_machine_and_figures() -> None:
    benchmark = Benchmark("speed", "nothing", lambda settings, say: iter(()))
    settings = Settings(quick=True, data=Path("nowhere"))
    result = document(benchmark, settings, [Figure("x", 3.0, 2.0)])
    assert result["command"] == "scripts/bench speed --quick"
    assert {"processor", "python", "torch"} <= set(result["machine"])
    assert result["figures"]["x"]["holds"] is True


def test_an_unknown_benchmark_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="sql"):
        find("speed", BENCHMARKS)


def test_a_scale_is_refused_where_there_is_nothing_to_scale() -> None:
    def run(settings: Settings, say: object) -> Iterator[Figure]:
        yield Figure("scale", settings.scale, 0.1)

    settings = Settings(quick=False, data=Path("nowhere"), scale=0.25)
    fixed, scaled = Benchmark("fixed", "", run), Benchmark("scaled", "", run, scales=True)
    with pytest.raises(ConfigError, match="'fixed' does not scale"):
        fixed.start(settings, print)
    (figure,) = scaled.start(settings, print)
    assert figure.value == 0.25
    assert document(scaled, settings, [])["command"] == "scripts/bench scaled --scale 0.25"
