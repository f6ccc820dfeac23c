"""The limits of `scripts/bench providers`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness import Settings
from benchmarks.providers.parts import limits as part
from benchmarks.providers.parts.limits import Limits, use
from benchmarks.providers.sizes import Sizes


def test_a_limit_is_used_up_and_not_hit() -> None:
    found = use("tokens", 1_000, 400, 0, tells=False, given=True)
    assert found.used > 0.95
    assert found.refused == 0
    assert found.requests == 400


def test_the_part_has_a_line_for_each_storm_and_says_the_worst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "choose", lambda quick: Sizes(limited=300))
    limits = Limits()
    found = {each.name: each for each in limits.measure(Settings(True, tmp_path), lambda _: None)}
    assert len(limits.found) == 8
    assert found["limit_used"].value == min(each.used for each in limits.found if each.given)
    lines = list(limits.render(()))
    assert sum("| 300 |" in line for line in lines) == 5
    assert sum("| 37 |" in line for line in lines) == 3  # short of tokens
