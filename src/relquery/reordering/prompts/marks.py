"""Which prefixes requests mark: the choice that the bill is computed for, as parts of prompts."""

from __future__ import annotations

import numpy as np

from relquery.arrays import Int64s
from relquery.errors import ConfigError
from relquery.lazy import AT_ONCE
from relquery.prices.price import Price
from relquery.prices.table import all_prices, find_price, known_price
from relquery.reordering.cost.billing import Blocks, Marks, bill
from relquery.reordering.cost.measure import Fields
from relquery.reordering.prompts.prompts import Prompts
from relquery.reordering.prompts.source import Source
from relquery.reordering.prompts.template import Template


def prompts(
    source: Source, template: Template, rows: Int64s, fields: Fields, price: Price | None
) -> Prompts:
    """The prompts of some rows; with breakpoints and their bill if the price has breakpoints."""
    if price is None or not price.breakpoints:
        return Prompts(source, template, rows, fields)
    blocks = blocks_of(source, template, rows, fields)
    charged = bill(blocks, price, requests_per_minute=source.requests_per_minute)
    headless = 0 if source.size_of(template.prefix) else 1
    marks = _in_parts(charged.breakpoints, blocks, headless)
    return Prompts(source, template, rows, fields, marks, charged)


def blocks_of(source: Source, template: Template, rows: Int64s, fields: Fields) -> Blocks:
    """Prompts as blocks: system text and text before the fields, each field, text after them."""
    return Blocks.of(
        source.sent(rows, fields),
        source.sizes(template),
        source.size_of(template.prefix),
        source.size_of(template.tail),
    )


def price_of(given: str | Price | None, source: Source, model: str | None) -> Price | None:
    """The price that marks are chosen for: the given one, the model's, or that of `reorder`.

    An rq.Price that the user made for `reorder` has precedence over the model's. Raises ConfigError
    for an unknown name.
    """
    if isinstance(given, Price):
        return given
    if isinstance(given, str):
        return find_price(given)
    if given is not None:
        raise ConfigError(f"price is {given!r}; it must be an rq.Price or the name of one.")
    is_own = source.price is not None and source.price.name not in all_prices()
    of_model = known_price(model) if isinstance(model, str) and not is_own else None
    return of_model or source.price


def _in_parts(marks: Marks, blocks: Blocks, shift: int) -> Marks:
    """Breakpoints in parts. marks: in tokens. shift: parts before all others that have no block."""
    found: Marks = []
    for start in range(0, len(marks), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        ends = Blocks(blocks.ids[some], blocks.sizes).ends
        for row, own in zip(ends, marks[some], strict=True):
            found.append(tuple((np.searchsorted(row, own) + 1 + shift).tolist()) if own else ())
    return found
