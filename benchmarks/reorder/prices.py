"""The cost of orders at providers: by hit rates, and billed on tokens (paper 000, §6.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.reorder.hits import cells_sent, reorder_as_told
from benchmarks.reorder.savings import savings
from benchmarks.reorder.tables import RealTable
from relquery.config import Order
from relquery.prices.price import Price
from relquery.prices.table import PRICES
from relquery.reordering.cost.billing import Bill, Blocks, bill
from relquery.reordering.cost.tokens import Encode, EstimatedTokens, Tokens, tokenize
from relquery.reordering.reorder import reorder

BILLED = (
    "gpt-6.1-sol",
    "gpt-6-luna",
    "gpt-5.4-mini",
    "gpt-5-mini",
    "gpt-4.1-mini",
    "gpt-4o-mini",
    "claude-opus-5",
    "claude-opus-4-8",
    "claude-sonnet-5",
    "claude-haiku-5-5",
    "claude-haiku-4-5",
    "claude-3-5-sonnet",
    "gemini-4-argon",
    "gemini-3.8-flash",
    "gemini-2.5-flash",
    "deepseek-flash",
    "deepseek-v4-pro",
)
"""Models whose prices are compared."""
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
        name: [savings(ours, PRICES[name], before=before) for before, ours in rates.values()]
        for name in BILLED
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
        sent[order] = Sent.of(cells_sent(rows, table.bags, schedule, "\n"), ask, encode)
    billed = []
    for name in names:
        schedule = reorder(
            rows, "tree", table.dependencies, table.bags, name, tokenizer=encode, prefix=ask
        )
        ours = Sent.of(cells_sent(rows, table.bags, schedule, "\n"), ask, encode)
        every = {**sent, ORDERS[-1]: ours}
        of = {order: each.bill(PRICES[name]) for order, each in every.items()}
        billed.append(Bills(table.name, PRICES[name], of))
    return billed


@dataclass(frozen=True, slots=True)
class Sent:
    """Prompts as tokens, and as the blocks in which a provider with breakpoints gets them."""

    tokens: Tokens
    blocks: Blocks

    @classmethod
    def of(cls, rows: Sequence[Sequence[str]], ask: str, encode: Encode) -> Sent:
        """rows: by prompt its cells in the order sent, after the request `ask`."""
        number: dict[str, int] = {}
        parts = [[ask, *cells] for cells in rows]
        ids = [[number.setdefault(part, len(number)) for part in prompt] for prompt in parts]
        sizes = tokenize(list(number), encode).lengths
        whole = tokenize(["".join(prompt) for prompt in parts], encode)
        return cls(whole, Blocks(np.array(ids, np.int32), sizes))

    def bill(self, price: Price) -> Bill:
        """What sending them costs."""
        return bill(self.blocks if price.breakpoints else self.tokens, price)
