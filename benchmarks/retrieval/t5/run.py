"""Questions of SQuAD, the passages to be searched, and the five that somebody else retrieved."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from benchmarks.queries.paper.queries import Call, Query
from benchmarks.queries.paper.run import OURS, SIDES, Costs, Measured, Ran, in_turns, serve
from benchmarks.reorder.tables import PASSAGES

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

ROWS, CONTEXTS, ANSWERS = (
    "squad/squad_rag5.parquet",
    "squad/squad_contexts.csv",
    "squad/squad_meta.csv",
)
TOKENS = 11
"""Of an answer over SQuAD: paper 000, Table 1."""


@dataclass(frozen=True, slots=True)
class Squad:
    """rows: question and PASSAGES, in the order of the file. contexts: one column, `context`.
    answers: the right answer to each question; empty if it has none."""

    rows: pa.Table
    contexts: pa.Table
    answers: list[str]

    @property
    def questions(self) -> pa.Table:
        """The column `question`."""
        return self.rows.select(["question"])

    def first(self, rows: int) -> Squad:
        """With the first questions, and all passages."""
        return Squad(self.rows.slice(0, rows), self.contexts, self.answers[:rows])

    def tables(self) -> dict[str, pa.Table]:
        """As queries name them."""
        return {"questions": self.questions, "contexts": self.contexts, "retrieved": self.rows}


def read_squad(folder: Path) -> Squad | None:
    """None if one of the files is absent."""
    files = [folder / name for name in (ROWS, CONTEXTS, ANSWERS)]
    if not all(file.exists() for file in files):
        return None
    rows, (contexts, answers) = pq.read_table(files[0]), map(_read_csv, files[1:])
    known = [answer or "" for answer in answers.column("answer").to_pylist()]
    return Squad(rows, contexts.select(["context"]), known)


def _read_csv(path: Path) -> pa.Table:
    return pa_csv.read_csv(path, parse_options=pa_csv.ParseOptions(newlines_in_values=True))


def query(passages: str, table: str = "questions") -> Query:
    """The paper's T5 over SQuAD. passages: what stands for them in the call."""
    call = Call(
        "Given a question and supporting contexts, answer the provided question.",
        f"{passages}, question",
        TOKENS,
        tuple(f"An answer in free text, of kind {kind}." for kind in range(16)),
        function="AI_COMPLETE",
    )
    return Query("T5", "squad", f"SELECT question, {{}} FROM {table}", (call,))


def found(limit: int) -> str:
    """So many passages, in SQL."""
    return f"passages('contexts', question, {limit})"


SEARCHED = query(found(5))
AS_MODULES = query(f"MODULE({found(5)})")
RETRIEVED = query(f"passage := BAG([{', '.join(PASSAGES)}])", "retrieved")
"""Over the passages of the file."""


MODULES = "modules"


@dataclass(frozen=True, slots=True)
class T5Run:
    """exact: the sides that send the same text. modules: passages are read by themselves."""

    exact: Measured
    modules: Ran

    @property
    def sides(self) -> dict[str, Ran]:
        """All four."""
        return {**self.exact.ran, MODULES: self.modules}

    @property
    def over_modules(self) -> float:
        """Seconds of our order over those with modules."""
        return self.exact.ran[OURS].seconds / self.modules.seconds


def measure(model: ServedModel, squad: Squad, shorter: int, costs: Costs, most: int = 1) -> T5Run:
    """Run all sides in turn, at most so many times; see `in_turns`."""
    tables = squad.tables()
    sides = {
        side: partial(serve, model, tables, SEARCHED, SEARCHED.sql(shorter), side) for side in SIDES
    }
    of_modules = AS_MODULES.sql(shorter)
    sides[MODULES] = partial(serve, model, tables, AS_MODULES, of_modules, OURS)
    ran = in_turns(sides, most)
    modules = ran.pop(MODULES)
    return T5Run(Measured(SEARCHED, ran, costs), modules)
