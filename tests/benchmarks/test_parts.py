"""Parts of a benchmark run by themselves, and a run rewrites their sections alone."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks import catalogue
from benchmarks.__main__ import main
from benchmarks.harness import Benchmark, Figure, Say, Settings
from benchmarks.parts import Part, Plot, in_parts, replace_section
from relquery.errors import ConfigError


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


def race() -> Benchmark:
    return in_parts("race", "who is first", (Fast, Slow), file="race.md", introduction="Two run.")


def settings(folder: Path | None, *parts: str, quick: bool = False, seed: int = 0) -> Settings:
    return Settings(quick, Path("nowhere"), seed=seed, write=folder, parts=parts)


def test_a_run_measures_all_parts_or_those_named() -> None:
    assert [figure.name for figure in race().start(settings(None), print)] == [
        "speed",
        "same",
        "hours",
    ]
    assert [figure.name for figure in race().start(settings(None, "slow"), print)] == ["hours"]


def test_an_unknown_part_lists_the_known() -> None:
    with pytest.raises(
        ConfigError, match=r"'fats' of the .* 'race' .* Known: fast, slow. Did you mean 'fast'"
    ):
        race().start(settings(None, "fats"), print)
    whole = Benchmark("whole", "", lambda settings, say: iter(()))
    with pytest.raises(ConfigError, match=r"Known: none"):
        whole.start(settings(None, "fast"), print)


def test_a_run_of_one_part_keeps_the_section_of_the_other(tmp_path: Path) -> None:
    said: list[str] = []
    list(race().start(settings(tmp_path, "slow", seed=7), said.append))
    path = tmp_path / "race.md"
    alone = path.read_text(encoding="utf-8")
    assert "`scripts/bench race --part slow`, seed 7" in alone
    assert "Quickly done" not in alone
    list(race().start(settings(tmp_path, "fast"), said.append))
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# `scripts/bench race`\n\nTwo run.\n")
    assert text.index("## Quickly done") < text.index("## Takes its time")
    assert "`scripts/bench race --part fast`, seed 0" in text
    assert text.endswith(alone[alone.index("<!-- part: slow -->") :])
    assert "with seed and 1 pictures" in text
    assert (tmp_path / "fast.png").exists()
    list(race().start(settings(tmp_path), said.append))
    again = path.read_text(encoding="utf-8")
    assert "seed 7" not in again
    assert again.count("## ") == 2
    assert said[-1] == f"wrote {path}"


def test_a_goal_stands_beside_its_figure_and_a_reported_one_has_none(tmp_path: Path) -> None:
    list(race().start(settings(tmp_path, seed=5), print))
    text = (tmp_path / "race.md").read_text(encoding="utf-8")
    assert "| `speed` | 3 | >= 2 | yes |" in text
    assert "| `hours` | 5 | - | reported |" in text


def test_sections_that_are_no_longer_there_are_left_out() -> None:
    old = "# Title\n\n<!-- part: gone -->\n## Gone\n\n<!-- part: b -->\n## B\nkept\n"
    assert replace_section(old, "a", "## A\n", ("a", "b")) == (
        "<!-- part: a -->\n## A\n\n<!-- part: b -->\n## B\nkept\n"
    )


def test_a_quick_run_judges_what_holds_at_any_size_alone() -> None:
    found = {figure.name: figure for figure in race().start(settings(None, quick=True), print)}
    assert found["speed"].value is None
    assert found["same"].holds is True
    assert found["hours"].verdict == "not measured"


@pytest.mark.parametrize(("part", "status", "told"), [("fast", 0, ""), ("slow", 1, "No figure")])
def test_a_run_that_can_judge_nothing_fails(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    part: str,
    status: int,
    told: str,
) -> None:
    monkeypatch.setattr(catalogue, "BENCHMARKS", (race(),))
    command = ["scripts/bench", "race", "--quick", "--part", part]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as exit:
        main()
    assert (exit.value.code or 0) == status
    assert told in capsys.readouterr().err
