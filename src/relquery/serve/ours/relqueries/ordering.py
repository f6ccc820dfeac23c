"""The prompts of a table: in an order that shares prefixes, equal rows once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.config import Order
from relquery.prompt import Prompt, Role, Span
from relquery.table.columns import encode
from relquery.table.prompts.prompts import RowPrompt
from relquery.table.prompts.template import Template
from relquery.table.reorder import reorder
from relquery.table.schedule import Report

_POLISHING = 0.01
"""Share of the predicted time of inference that goes into the order of a small table, as in SQL."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """Prompts to ask. report: what the order achieves; None for a table without rows.

    sharing: for each prompt, the rows that get its answer.
    """

    prompts: list[Prompt]
    sharing: list[list[int]]
    report: Report | None


def order_rows(table: pa.Table, template: Template, order: Order) -> Ordered:
    """The prompts of a table's rows. Takes time. Raises ConfigError and TableError."""
    columns = encode(table)
    if not columns.codes.shape[0]:
        return Ordered([], [], None)
    _, first, group = np.unique(columns.codes, axis=0, return_index=True, return_inverse=True)
    kept = np.sort(first)
    sharing = _sharing(first, group.reshape(-1))
    options: dict[str, Any] = {"polishing": _POLISHING} if order == "tree" else {}
    distinct = replace(columns, codes=np.asfortranarray(columns.codes[kept]))
    schedule = reorder(distinct, order, **options)
    prompts = list(schedule.prompts(template))
    rows = [sharing[int(kept[prompt.row])] for prompt in prompts]
    return Ordered([_prompt(each) for each in prompts], rows, schedule.report)


def _sharing(first: Int64s, group: Int64s) -> dict[int, list[int]]:
    """The rows that are equal to each first one, itself included."""
    found: dict[int, list[int]] = {int(row): [] for row in first}
    for row, at in enumerate(group.tolist()):
        found[int(first[at])].append(row)
    return found


def _prompt(row: RowPrompt) -> Prompt:
    system = (Span(row.system, Role.SYSTEM, begins=True),) if row.system else ()
    return (*system, Span(row.text, Role.USER, begins=True))
