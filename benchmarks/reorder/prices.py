"""The cost of orders at providers: by hit rates, and billed on tokens (paper 000, §6.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.reorder.hits import prompts, reorder_as_told
from benchmarks.reorder.tables import RealTable
from relquery.config import Order
from relquery.table.cost.billing import Bill, bill
from relquery.table.cost.pieces import EstimatedTokens
from relquery.table.cost.price import PRICES, Price, savings
from relquery.table.cost.tokens import Encode, tokenize
from relquery.table.reorder import reorder

REPEATS = 5  # of each value, to exceed the shortest prefix that is cached, as in paper 000
ASKS = {
    "squad": "Given a question and supporting contexts, answer the provided question.\n",
    "movies": (
        "Given the following fields, answer in one word, 'Yes' or 'No', whether the movie would "
        "be suitable for kids. Answer with ONLY 'Yes' or 'No'.\n"
    ),
}
"""By table, the request's text before the fields, from paper 000 (appendices A and C)."""

ORDERS = ("original", "ggr", "tree by tokens", "tree by price")
Rates = Mapping[str, tuple[float, float]]  # table: hit rates of the original order and of ours


@dataclass(frozen=True, slots=True)
class Bills:
    """The cost of a table's rows under one price, for each of ORDERS."""

    table: str
    price: Price
    of: dict[str, Bill]

    def over(self, other: str) -> float:
        """The bill of `tree by price` divided by another order's."""
        return self.of["tree by price"].usd / self.of[other].usd

    def saved(self, order: str) -> float:
        """Share of the original order's bill that another order saves."""
        return 1 - self.of[order].usd / self.of["original"].usd


def estimate(rates: Rates) -> dict[str, list[float]]:
    """By price, the savings over the original order per table, as in paper 000's Table 4."""
    return {
        name: [savings(ours, price, before=before) for before, ours in rates.values()]
        for name, price in PRICES.items()
    }


def repeat(rows: pa.Table, times: int) -> pa.Table:
    """Each value repeated several times, as text."""
    columns, separator = [], pa.scalar(" ", pa.large_string())
    for column in rows.columns:
        text = pc.fill_null(column.cast(pa.large_string()), "")
        columns.append(pc.binary_join_element_wise(*[text] * times, separator))
    return pa.table(columns, names=rows.column_names)


def bills(
    table: RealTable, rows: pa.Table, names: Sequence[str], encode: Encode | None
) -> list[Bills]:
    """The bills of all orders, under each of these prices.

    Without a tokenizer, tokens are approximated by pieces of words.
    """
    encode = encode or EstimatedTokens()
    ask, sent = ASKS[table.name], {}
    methods: tuple[Order, ...] = ("original", "ggr", "tree")
    for order, method in zip(ORDERS, methods, strict=False):
        schedule = reorder_as_told(table, rows, method)
        sent[order] = tokenize(prompts(rows, table.bags, schedule, ask, "\n"), encode)
    found = []
    for name in names:
        of = {order: bill(tokens, PRICES[name]) for order, tokens in sent.items()}
        schedule = reorder(
            rows, "tree", table.dependencies, table.bags, name, tokenizer=encode, prefix=ask
        )
        tokens = tokenize(prompts(rows, table.bags, schedule, ask, "\n"), encode)
        found.append(
            Bills(table.name, PRICES[name], {**of, ORDERS[-1]: bill(tokens, PRICES[name])})
        )
    return found
