"""Costs are estimated from hit rates and billed on tokens."""

from __future__ import annotations

import pyarrow as pa
import pytest

from benchmarks.reorder.prices import ASKS, bills, estimate, repeat
from relquery.table.cost.pieces import EstimatedTokens
from relquery.table.reorder import reorder
from tests.benchmarks.samples import PAIRS, passages


def test_values_are_repeated_as_text() -> None:
    table = repeat(pa.table({"a": [1, None], "b": ["x", "y"]}), 3)
    assert table.to_pydict() == {"a": ["1 1 1", "  "], "b": ["x x x", "y y y"]}


def test_estimates_are_those_of_the_paper_at_its_hit_rates() -> None:
    shares = estimate({"movies": (0.346, 0.857), "beer": (0.499, 0.801)})["gpt-4o-mini"]
    assert [f"{share:.0%}" for share in shares] == ["31%", "20%"]


@pytest.mark.parametrize("price", ["deepseek-flash", "claude-opus-5"])
def test_bills_count_what_the_schedule_itself_is_billed(price: str) -> None:
    rows = repeat(passages(24), 40 if price == "claude-opus-5" else 5)
    encode, ask = EstimatedTokens(), ASKS["squad"]
    found = bills(PAIRS, rows, [price, "gpt-4o-mini"], encode)
    schedule = reorder(rows, "tree", (), PAIRS.bags, price, tokenizer=encode, prefix=ask)
    assert schedule.report.bill is not None
    assert found[0].of["tree by price"].usd == pytest.approx(schedule.report.bill.usd)
    assert found[0].saved("original") == 0 < found[0].saved("tree by price")
    assert found[0].over("ggr") <= 1
    assert found[1].of["original"].read == 0  # prompts are shorter than what is cached
