"""Each rule rewrites what it is for, and leaves alone what would change the result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from relquery.connection import Connection
from tests.sql.fakes import FakeBackend
from tests.sql.same import queries
from tests.sql.scripts import Script, read, scripts

Reference = Callable[[str], list[tuple[Any, ...]]]


def under(title: str) -> list[str]:
    return queries("optimizer/rules.sql", is_long=False, under=title)


def test_a_rule_rewrites_once(rewritten: Callable[[str], str], plain: Callable[[str], str]) -> None:
    both = under("a rule rewrites once")
    for query, after in zip(both[::2], both[1::2], strict=True):
        assert rewritten(query) == plain(after)
        assert rewritten(after) == plain(after)


def test_conditions_about_pairs_become_joins(
    rewritten: Callable[[str], str], plain: Callable[[str], str]
) -> None:
    both = under("conditions about pairs")
    for query, after in zip(both[::2], both[1::2], strict=True):
        assert rewritten(query) == plain(after)


def test_what_would_change_the_result_is_kept(
    rewritten: Callable[[str], str], plain: Callable[[str], str]
) -> None:
    for query in under("what would change the result"):
        assert rewritten(query) == plain(query)


@scripts(__file__)
def test_statements(
    script: Script, con: Connection, backend: FakeBackend, reference: Reference
) -> None:
    script.run(con, backend, reference=reference)


def test_explain_tells_at_least_as_many_calls(con: Connection, backend: FakeBackend) -> None:
    (counted, _), *_ = read(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for step in counted.steps:
        foretold = [call.calls for call in con.explain(step.sql).calls]
        made = int(dict(step.marks)["#"])
        assert None in foretold or sum(count or 0 for count in foretold) >= made, step.sql
    assert not backend.asked
