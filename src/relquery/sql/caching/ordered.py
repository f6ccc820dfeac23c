"""The order in which a stage is sent, where the provider's prices may say that none pays."""

from __future__ import annotations

from dataclasses import dataclass

from relquery.arrays import Int64s
from relquery.backends.base import Backend
from relquery.config import Order
from relquery.sql.caching.plan import CachePlan, planned
from relquery.sql.inputs.inputs import Inputs
from relquery.table.schedule import Schedule


@dataclass(frozen=True, slots=True, eq=False)
class Ordered:
    """rows: inputs in the order to send. schedule: of their fields, None if there are none.

    plan: what the provider caches of these prompts; None where nothing is known of that.
    """

    rows: Int64s
    schedule: Schedule | None
    plan: CachePlan | None


def ordered(inputs: Inputs, rows: Int64s, order: Order, backend: Backend) -> Ordered:
    """The order that shares the most of some inputs, given in the query's order.

    Where a provider's price is known, and sharing saves nothing, rows and fields are sent as
    written: fields in another order may be some tokens more, and no answer should depend on an
    order that nobody gains by.
    """
    schedule = inputs.schedule(rows, order)
    if schedule is None:
        return Ordered(rows, None, None)
    sent = rows[schedule.rows]
    plan = planned(inputs.prompts(sent, schedule), backend)
    if plan is None or plan.pays or order == "original":
        return Ordered(sent, schedule, plan)
    schedule = inputs.schedule(rows, "original")
    return Ordered(rows, schedule, planned(inputs.prompts(rows, schedule), backend))
