"""Conditions under which expressions are read."""

from __future__ import annotations

from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Conjunction
from relquery.sql.planner.guards import Conditions


def test_sides_of_an_or_share_their_conditions_so_that_many_take_no_longer_than_few() -> None:
    top = parser().expression(" OR ".join(f"a = {number}" for number in range(30)))
    assert isinstance(top, Conjunction)
    conditions = Conditions(top, FunctionCatalog({}), where_it_counts=True)
    found = [conditions.of(side) for side in top.operands]
    assert {len(one) for one in found} == {29}
    assert len({id(condition) for one in found for condition in one}) == 30
