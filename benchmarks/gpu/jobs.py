"""What sides compute beside prefill and decode: a filter over a table, prompts of modules."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from benchmarks.engine.jobs import Job, Prompts, draw
from benchmarks.gpu.sizes import Sizes
from relquery.engine.requests.pieces import Chain
from relquery.reordering.reorder import reorder

FIELDS = {
    "title": 1.0,
    "director": 0.25,
    "genre": 0.02,
    "company": 0.06,
    "year": 0.1,
    "review": 1.0,
}
"""Distinct values of each field, as a share of the rows."""
SYSTEM, NAME, QUESTION = 64, 4, 30
"""Tokens of the system prompt, of a field's name, and of a question after modules."""


def filter_jobs(sizes: Sizes, seed: int) -> dict[str, Job]:
    """A prompt for each row of a table, whose answers have one token: in our order of rows and
    fields, and in the table's."""
    rng = np.random.default_rng((seed, 1))
    vocabulary = sizes.jobs.vocabulary
    (system,) = draw(rng, 1, SYSTEM, vocabulary)
    names = dict(zip(FIELDS, draw(rng, len(FIELDS), NAME, vocabulary), strict=True))
    values: dict[str, Prompts] = {}
    table: dict[str, list[str]] = {}
    for field, share in FIELDS.items():
        length = 4 * sizes.value if field == "review" else sizes.value
        distinct = draw(rng, max(2, int(share * sizes.rows)), length, vocabulary)
        which = rng.integers(0, len(distinct), sizes.rows).tolist()
        if share == 1.0:
            which = list(range(sizes.rows))
        values[field] = [distinct[number] for number in which]
        table[field] = [f"{number:0{length}d}" for number in which]

    def prompt(row: int, fields: list[str]) -> list[int]:
        parts = ([*names[field], *values[field][row]] for field in fields)
        return [*system, *(token for part in parts for token in part)]

    schedule = reorder(table)
    columns = list(FIELDS)
    ours = [
        prompt(row, [columns[column] for column in order])
        for row, order in zip(schedule.rows.tolist(), schedule.fields.tolist(), strict=True)
    ]
    given = [prompt(row, columns) for row in range(sizes.rows)]
    return {"ours": Job(ours, 1), "table": Job(given, 1)}


def module_jobs(sizes: Sizes, seed: int, tokens: int) -> dict[str, Job]:
    """A prompt over modules whose states are in the cache, in another order than they were computed
    in, with an answer of so many tokens; and the same prompt as text."""
    rng = np.random.default_rng((seed, 2))
    vocabulary = sizes.jobs.vocabulary
    modules = draw(rng, *sizes.modules, vocabulary)
    (question,) = draw(rng, 1, QUESTION, vocabulary)
    spans = [Chain((np.array(each, dtype=np.int32),)) for each in modules]
    chain = Chain((*spans[::-1], np.array(question, dtype=np.int32)))
    text = [token for each in modules[::-1] for token in each]
    prompts = cast(Any, [chain])
    return {
        "modules": Job(prompts, tokens, modules),
        "text": Job([[*text, *question]], tokens),
    }
