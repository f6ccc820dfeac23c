"""The prompts that relquery sends for a call over a table, as a provider gets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

import relquery as rq
from relquery.backends.base import Answers, Backend, Limits
from relquery.config import Order
from relquery.prompt import Answer, Finish, Prompt, Sampling

ASK = (
    "Given the following fields, answer in one word, ''Yes'' or ''No'', whether it would be "
    "suitable for kids. Answer with ONLY ''Yes'' or ''No''."
)
"""As in paper 000 (appendix A), for any table."""
UNPRICED = "noting"
IN_FLIGHT = 16
"""Requests under way at once."""


@dataclass(slots=True)
class Noting(Backend):
    """Notes the prompts that it is asked, and answers Yes. model: which it stands for."""

    model: str
    asked: list[Prompt] = field(default_factory=list)

    @property
    def name(self) -> str:
        """See Backend."""
        return self.model

    @property
    def limits(self) -> Limits:
        """See Backend."""
        return Limits(concurrency=IN_FLIGHT)

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend."""
        for index, prompt in enumerate(prompts):
            self.asked.append(prompt)
            yield index, Answer("Yes", Finish.STOP)


def prompts_of(rows: pa.Table, order: Order, model: str = UNPRICED) -> list[Prompt]:
    """What a projection over all columns sends, in the order sent; equal rows are asked about once.

    model: for whose cache prompts are marked and ordered; UNPRICED for none.
    """
    backend = Noting(model)
    with rq.connect(backend, order=order, form="json") as con:
        con.register("rows", rows)
        con.sql(f"SELECT LLM('{ASK}', rows.*) AS said FROM rows")
    return backend.asked
