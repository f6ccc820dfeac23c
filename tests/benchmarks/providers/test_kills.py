"""The kills of `scripts/bench providers`: real processes."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.providers.parts import kills as part
from benchmarks.providers.parts.kills import Killed, Kills, live_kills


def test_a_killed_query_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "ROWS", 90)
    found = live_kills(1, Random(0))
    assert (found.kills, found.rows, found.wrong) == (1, 90, 0)
    assert (found.lost, found.paid) == (0, 0)
    assert 90 <= found.requests <= 90 + found.in_flight


def test_the_section_has_a_line_for_each_kind_of_kill() -> None:
    kills = Kills()
    kills.found = [Killed("a query", 10, 900, 1_000, 0, 100, 120, 0, 0)]
    assert "| a query | 10 | 900 | 1,000 | 0 | 100 | 120 | 0 | 0 |" in "\n".join(kills.render(()))
