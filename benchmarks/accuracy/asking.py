"""One variant over one table: what is answered, how likely, and in how many tokens."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.accuracy.datasets import GOLD, ROW, Dataset
from benchmarks.accuracy.variants import Variant
from relquery.connection import Connection
from relquery.errors import OrderWarning

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The answers of a variant to the rows of a sample, in the file's order."""

    gold: Bools
    """(rows,), whether yes is right."""
    said: Bools
    """(rows,), whether yes was answered."""
    answered: Bools
    """(rows,), whether there is an answer."""
    scores: Floats | None
    """(rows,), how likely yes is; None where a guard compares the answers."""
    tokens: float
    """Tokens of prompts for each row."""
    agreement: float | None = None
    """What the guard found, if anything was compared."""
    is_pinned: bool = False
    """Whether the guard had fields sent as written."""

    @property
    def right(self) -> Bools:
        """(rows,), whether the answer is right; none is wrong."""
        right: Bools = (self.said == self.gold) & self.answered
        return right


def ask(connection: Connection, dataset: Dataset, sample: pa.Table, variant: Variant) -> Answers:
    """Ask about each row. Labels take one forward pass.

    A guard compares the labels alone: scores have a tolerance of their own.
    """
    connection.register("sample", sample)
    arguments = f"'{dataset.question}', {', '.join(dataset.fields)}"
    calls = [f"AI_FILTER({arguments}) AS said"]
    if not variant.has_guard:  # the same request
        calls.append(f"AI_SCORE({arguments}) AS score")
    query = f"SELECT {ROW}, {GOLD}, {', '.join(calls)} FROM sample ORDER BY {ROW}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OrderWarning)  # the page says what the guard did
        result = connection.sql(query, **variant.asked)
    rows, report = result.arrow(), result.report
    said = rows["said"].to_pylist()
    stage = report.stages[0]
    return Answers(
        np.array(rows[GOLD].to_pylist(), np.bool_),
        np.array([answer is True for answer in said], np.bool_),
        np.array([answer is not None for answer in said], np.bool_),
        None if variant.has_guard else np.array(rows["score"].to_pylist(), np.float64),
        report.prompt_tokens / len(said),
        stage.agreement,
        stage.is_pinned,
    )
