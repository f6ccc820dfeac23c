"""A printed result fits the terminal, and cuts no more than it has to."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from relquery.report import Report
from relquery.sql.render import aligned, shares
from relquery.sql.result import Result


def printed(columns: dict[str, list[str]]) -> list[str]:
    return str(Result(pa.table(columns), (), Report())).splitlines()


@pytest.mark.parametrize("width", [60, 100, 200])
def test_a_result_is_as_wide_as_the_terminal_at_most(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    long = "word " * 100
    lines = printed({"id": ["1"], "a": [long], "b": [long]})
    assert max(map(len, lines)) in (width, width - 1)
    assert lines[0].startswith("id | a ")
    assert lines[2].count("...") == 2


def test_without_a_terminal_there_are_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.__stdout__", None)
    _, rule, row, _ = printed({"text": ["x" * 500]})
    assert rule == "-" * 80
    assert row == "x" * 77 + "..."


def test_one_long_column_gets_what_the_short_ones_leave() -> None:
    assert shares([3, 500, 10], 80) == [3, 67, 10]
    assert shares([500, 500, 10], 80) == [35, 35, 10]
    assert shares([40, 40], 80) == [40, 40]
    assert shares([90] * 30, 80) == [8] * 30  # too many: lines are longer than the terminal
    assert shares([], 80) == []


@given(st.lists(st.integers(0, 60), min_size=1, max_size=9), st.integers(20, 120))
def test_shares_are_fair(natural: list[int], width: int) -> None:
    found = shares(natural, width)
    assert all(share <= own for share, own in zip(found, natural, strict=True))
    cut = [share for share, own in zip(found, natural, strict=True) if share < own]
    if not cut:
        assert found == natural
        return
    assert sum(found) <= max(width, 8 * len(natural))
    assert max(cut) - min(cut) <= 1
    assert max(found) <= max(cut) + 1  # none has more than those that are cut


def test_wide_characters_take_two_columns() -> None:
    lines = aligned([["t", "n"], ["日本語の文章です", "1"], ["abc", "2"]], 15)
    assert lines == ["t           | n", "------------+--", "日本語の... | 1", "abc         | 2"]
    assert {cell_len(line) for line in lines[::2]} == {15}


def test_a_result_without_columns_is_its_size() -> None:
    assert printed({})[-1] == "[0 rows]"
