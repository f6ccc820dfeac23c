"""Traces are files that a person can read, and say where they are wrong."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from relquery.errors import TableError
from relquery.traces.trace import TracedQuery, load, save

QUERY = TracedQuery(
    1.5, "filter", "beer", "Good?\n", ("é\nAnswer:", "b\nAnswer:"), 5, (2, 3), "ann"
)


def test_a_trace_comes_back_in_order_of_arrival(tmp_path: Path) -> None:
    early = TracedQuery(0.5, "open", "movies", "Why?\n", ("x",), 100, (70,))
    save([QUERY, early], tmp_path / "trace.jsonl")
    assert load(tmp_path / "trace.jsonl") == [early, QUERY]
    assert list(QUERY.prompts) == ["Good?\né\nAnswer:", "Good?\nb\nAnswer:"]


WRONG: list[tuple[dict[str, object], str]] = [
    ({"outputs": [2]}, "2 rows, but 1 output lengths"),
    ({"outputs": [2, 9]}, "from 1 to 5 tokens"),
    ({"outputs": [0, 1]}, "from 1 to 5 tokens"),
    ({"arrival": -1}, "must be finite and not negative"),
    ({"arrival": float("nan")}, "must be finite and not negative"),
    ({"arrival": float("inf")}, "must be finite and not negative"),
    ({"arrival": 10**400}, "must be a number of seconds"),
    ({"arrival": True}, "must be a number of seconds"),
    ({"colour": 1}, "unknown: 'colour'"),
    ({"rows": None}, "`rows` must be a list"),
    ({"rows": "ab"}, "`rows` must be a list"),
    ({"rows": [1, 2]}, "`rows` contains 1; each must be text"),
    ({"rows": ["\ud800", "b"]}, "surrogate"),
    ({"outputs": [1, True]}, "`outputs` contains True; each must be a whole number"),
    ({"output_limit": 2.5}, "`output_limit` must be a whole number"),
    ({"tenant": 5}, "`tenant` must be text"),
]


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    for change, message in WRONG:
        save([QUERY], path)
        wrong = {**json.loads(path.read_text()), **change}
        path.write_text(f"{path.read_text()}\n{json.dumps(wrong)}\n")
        with pytest.raises(TableError, match=f"(?s)line 3.*{re.escape(message)}"):
            load(path)


def test_what_is_no_relquery_and_a_file_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with pytest.raises(TableError, match=r"trace\.jsonl"):
        load(path)
    for text in ("{", "[1]", "7", "null", "[" * 100_000, "{}"):
        path.write_text(text)
        with pytest.raises(TableError, match="line 1"):
            load(path)


def test_a_tenant_may_be_left_out_and_a_mark_of_utf8_may_stand_in_front(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    save([QUERY], path)
    fields = json.loads(path.read_text())
    del fields["tenant"]
    path.write_text(json.dumps(fields), encoding="utf-8-sig")
    assert load(path) == [replace(QUERY, tenant="")]
