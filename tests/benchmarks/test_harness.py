"""Figures and goals; and benchmarks in parts, of which a run rewrites its own sections alone."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks import catalogue
from benchmarks.__main__ import main
from benchmarks.harness import Benchmark, Figure, Say, Settings, document, find, too_small
from benchmarks.parts import Part, Plot, in_parts, replace_section
from relquery.errors import ConfigError

NOWHERE = Path("nowhere")


@pytest.mark.parametrize(
    ("value", "at_least", "holds"),
    [(2.0, True, True), (1.9, True, False), (2.0, False, True), (2.1, False, False)],
)
def test_a_figure_holds_on_its_side_of_the_goal(value: float, at_least: bool, holds: bool) -> None:
    assert Figure("x", value, 2.0, at_least).holds is holds


def test_a_figure_that_could_not_be_measured_neither_holds_nor_fails() -> None:
    said = {"goal": ">= 2", "verdict": "not measured", "note": "the table is absent"}
    figure = Figure("x", None, 2.0, note="the table is absent")
    assert figure.to_dict() == {"value": None, "holds": None, **said}


def test_a_figure_without_a_goal_is_reported() -> None:
    figure = Figure("x", 3.0, None)
    assert (figure.holds, figure.shown_goal, figure.verdict) == (None, "-", "reported")


def test_a_small_run_judges_what_holds_at_any_size_alone() -> None:
    large, always = Figure("x", 3.0, 2.0), Figure("y", 3.0, 2.0, any_size=True)
    assert too_small(large).holds is None
    assert "3 at a small size" in too_small(large).note
    assert too_small(always).holds is True


def test_the_document_names_command_machine_and_figures() -> None:
    benchmark = Benchmark("speed", "nothing", lambda settings, say: iter(()))
    result = document(benchmark, Settings(True, NOWHERE), [Figure("x", 3.0, 2.0)])
    assert result["command"] == "scripts/bench speed --quick"
    assert {"processor", "python", "torch"} <= set(result["machine"])
    assert result["figures"]["x"]["holds"] is True


def test_an_unknown_benchmark_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="sql"):
        find("speed", catalogue.BENCHMARKS)


def test_a_scale_is_refused_where_there_is_nothing_to_scale() -> None:
    def run(settings: Settings, say: object) -> Iterator[Figure]:
        yield Figure("scale", settings.scale, 0.1)

    settings = Settings(quick=False, data=NOWHERE, scale=0.25)
    with pytest.raises(ConfigError, match="'fixed' does not scale"):
        Benchmark("fixed", "", run).start(settings, print)
    scaled = Benchmark("scaled", "", run, scales=True)
    assert [figure.value for figure in scaled.start(settings, print)] == [0.25]
    assert document(scaled, settings, [])["command"] == "scripts/bench scaled --scale 0.25"


@pytest.mark.parametrize("scale", [0.0, -1.0, 1.5, float("nan")])
def test_a_scale_is_a_share(scale: float) -> None:
    with pytest.raises(ConfigError, match="above 0, and at most 1"):
        Settings(quick=True, data=NOWHERE, scale=scale)


class Fast(Part):
    """Has a picture."""

    name, title = "fast", "Quickly done"

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        yield Figure("speed", 3.0, 2.0)
        yield Figure("same", 1.0, 1.0, any_size=True)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        yield f"Found out with seed and {len(drawn)} pictures."

    def pictures(self) -> Mapping[str, Plot]:
        return {"fast.png": lambda path: path.write_bytes(b"drawn") and None}


class Slow(Part):
    """Has only figures."""

    name, title = "slow", "Takes its time"

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        yield Figure("hours", float(settings.seed), None)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        yield from ()


RACE = in_parts("race", "who is first", (Fast, Slow), file="race.md", introduction="Two run.")


def run(folder: Path | None, *parts: str, quick: bool = False, seed: int = 0) -> list[Figure]:
    settings = Settings(quick, NOWHERE, seed=seed, write=folder, parts=parts)
    return list(RACE.start(settings, print))


def test_a_run_measures_all_parts_or_those_named() -> None:
    assert [figure.name for figure in run(None)] == ["speed", "same", "hours"]
    assert [figure.name for figure in run(None, "slow")] == ["hours"]


def test_an_unknown_part_lists_the_known() -> None:
    known = r"'fats' of the .* 'race' .* Known: fast, slow. Did you mean 'fast'"
    with pytest.raises(ConfigError, match=known):
        run(None, "fats")
    whole = Benchmark("whole", "", lambda settings, say: iter(()))
    with pytest.raises(ConfigError, match=r"Known: none"):
        whole.start(Settings(False, NOWHERE, parts=("fast",)), print)


def test_a_run_of_one_part_keeps_the_section_of_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "slow", seed=7)
    path = tmp_path / "race.md"
    alone = path.read_text(encoding="utf-8")
    assert "`scripts/bench race --part slow`, seed 7" in alone
    assert "Quickly done" not in alone
    run(tmp_path, "fast")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# `scripts/bench race`\n\nTwo run.\n")
    assert text.index("## Quickly done") < text.index("## Takes its time")
    assert "`scripts/bench race --part fast`, seed 0" in text
    assert text.endswith(alone[alone.index("<!-- part: slow -->") :])
    assert "with seed and 1 pictures" in text
    assert (tmp_path / "fast.png").exists()
    run(tmp_path, seed=5)
    again = path.read_text(encoding="utf-8")
    assert "seed 7" not in again
    assert again.count("## ") == 2
    assert "| `speed` | 3 |  | >= 2 |" in again
    assert "| `hours` | 5 |  | reported |" in again
    assert capsys.readouterr().out.endswith(f"wrote {path}\n")


def test_sections_that_are_no_longer_there_are_left_out() -> None:
    old = "# Title\n\n<!-- part: gone -->\n## Gone\n\n<!-- part: b -->\n## B\nkept\n"
    assert replace_section(old, "a", "## A\n", ("a", "b")) == (
        "<!-- part: a -->\n## A\n\n<!-- part: b -->\n## B\nkept\n"
    )


def test_a_quick_run_judges_what_holds_at_any_size() -> None:
    speed, same, hours = run(None, quick=True)
    assert (speed.value, same.holds, hours.verdict) == (None, True, "not measured")


@pytest.mark.parametrize(("part", "status", "told"), [("fast", 0, ""), ("slow", 1, "No figure")])
def test_a_run_that_can_judge_nothing_fails(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    part: str,
    status: int,
    told: str,
) -> None:
    monkeypatch.setattr(catalogue, "BENCHMARKS", (RACE,))
    monkeypatch.setattr(sys, "argv", ["scripts/bench", "race", "--quick", "--part", part])
    with pytest.raises(SystemExit) as exit:
        main()
    assert (exit.value.code or 0) == status
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "written"),
    [((), "docs/benchmarks"), (("--quick",), None), (("--quick", "--write", "here"), "here")],
)
def test_documents_go_where_the_project_keeps_them_unless_told_otherwise(
    options: tuple[str, ...], written: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path | None] = []

    def run(settings: Settings, say: object) -> Iterator[Figure]:
        seen.append(settings.write)
        yield Figure("x", 1.0, 1.0)

    (tmp_path / "docs" / "benchmarks").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogue, "BENCHMARKS", (Benchmark("fake", "", run),))
    monkeypatch.setattr(sys, "argv", ["scripts/bench", "fake", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert seen == [Path(written) if written else None]
