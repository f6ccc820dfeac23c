"""The join that asks about all pairs, and about near ones only, on a model that knows the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from benchmarks.queries.prompts import read
from benchmarks.retrieval.join.companies import Companies
from relquery.backends.base import Backend
from relquery.connection import connect
from relquery.prompt import Answer, Finish, Prompt, Sampling

QUESTION = "Are these the same company?"
JOIN = "SELECT a.name AS one, b.name AS other FROM a JOIN b ON {near}AI_FILTER('{question}', "
FIELDS = "a.name AS one, b.name AS other)"
NEAR = "AI_SIMILARITY(a.name, b.name) > {threshold} AND "

Pairs = frozenset[tuple[str, str]]


class Knowing(Backend):
    """Answers by the truth. asked: how many prompts."""

    name = "knowing"

    def __init__(self, same: Pairs) -> None:
        self._same, self.asked = same, 0

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        """See Backend."""
        for index, prompt in enumerate(prompts):
            asked = read(prompt)
            assert asked is not None, "the join asks nothing else"
            is_same = (asked.fields["one"], asked.fields["other"]) in self._same
            self.asked += 1
            yield index, Answer("Yes" if is_same else "No", Finish.STOP)


@dataclass(frozen=True, slots=True)
class Joined:
    """calls: made. pairs: in the result."""

    calls: int
    pairs: Pairs

    def share(self, whole: Joined) -> float:
        """Of another join's pairs."""
        return len(self.pairs & whole.pairs) / len(whole.pairs)


def statement(threshold: float | None) -> str:
    """The join. threshold: of near pairs; None to ask about all."""
    near = "" if threshold is None else NEAR.format(threshold=threshold)
    return JOIN.format(near=near, question=QUESTION) + FIELDS


def join(tables: Companies, threshold: float | None = None) -> Joined:
    """Run the statement, and count its calls."""
    backend = Knowing(tables.same)
    with closing(connect(backend, ledger=None)) as connection:
        connection.register("a", pa.table({"name": tables.left}))
        connection.register("b", pa.table({"name": tables.right}))
        rows = connection.sql(statement(threshold)).fetchall()
    return Joined(backend.asked, frozenset((str(one), str(other)) for one, other in rows))
