"""Progress in a notebook: bars that are updated in place and go away."""

from __future__ import annotations

from typing import Any

import pytest

from relquery.progress import watch as notebook
from relquery.progress.stages import RunProgress
from relquery.progress.watch import DELAY, EVERY, display_here, shown, watching


class Handle:
    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def update(self, bars: Any) -> None:
        self.seen.append(bars._repr_html_())


def test_progress_is_shown_now_and_then_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    now = 0.0

    def display(bars: Any) -> Handle:
        seen.append(bars._repr_html_())
        return Handle(seen)

    monkeypatch.setattr(notebook, "display_here", lambda: display)
    with watching(None, lambda: now) as watch:
        assert watch is not None
        for done, seconds in enumerate((0.0, DELAY, DELAY + EVERY / 2, DELAY + 2 * EVERY), 1):
            now = seconds
            watch("filter <1>", done, 5)
    assert "filter &lt;1&gt;: 2 of 5" in seen[0]
    assert "filter &lt;1&gt;: 4 of 5" in seen[1]
    assert seen[2:] == [""]


def test_a_quick_query_shows_nothing() -> None:
    tally = RunProgress(lambda: 0.0)
    with shown(tally, lambda bars: pytest.fail("shown")) as tell:
        tally.advance("filter 1", 1, 2)
        tell()


def test_outside_a_notebook_there_is_nothing_to_show_on() -> None:
    assert display_here() is None
