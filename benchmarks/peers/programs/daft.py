"""Daft: its prompt function over the OpenAI provider, chat completions, the SDK's retries.

It has no store of answers, and its checkpoints need Ray, so `store` is left unused.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import daft
from daft import col
from daft.ai.openai.provider import OpenAIProvider
from daft.functions import format as written
from daft.functions import prompt
from pydantic import BaseModel, create_model

from benchmarks.peers.programs import questions
from benchmarks.peers.programs.job import RETRIES, Job, Rows, main

Mood: Any = StrEnum("Mood", [(label, label) for label in questions.LABELS])  # type: ignore[misc]
Recommended = create_model("Recommended", recommended=(bool, ...))
Labelled = create_model("Labelled", mood=(Mood, ...))
Extracted = create_model("Extracted", mood=(Mood, ...), stars=(int, ...))

PATIENCE = 600.0
"""Seconds, to connect too: all rows are asked at once, and most of them wait for a connection."""


def table(job: Job) -> Any:
    """The rows, each a batch: a batch loses all its rows if one of their calls fails."""
    return daft.read_parquet(f"{job.table}/rows.parquet").into_batches(1)


def ask(job: Job, question: str, text: Any, form: type[BaseModel] | None = None) -> Any:
    """A column of answers; null for rows without one."""
    return prompt(
        text,
        system_message=questions.plain(question),
        return_format=form,
        provider=OpenAIProvider(base_url=job.url, api_key="none", timeout=PATIENCE),
        model=job.model,
        use_chat_completions=True,
        max_retries=RETRIES,
        on_error="log",
    )


def values(frame: Any, key: str = "id") -> Rows:
    """Those of the column `value` that are not null."""
    columns = frame.select(key, "value").to_pydict()
    pairs = zip(columns[key], columns["value"], strict=True)
    return {str(name): value for name, value in pairs if value is not None}


def map_reviews(job: Job) -> Rows:
    """A sentence about each review."""
    return values(table(job).with_column("value", ask(job, questions.MAP, col("reviewcontent"))))


def map_films(job: Job) -> Rows:
    """A sentence about the film of each review."""
    return values(table(job).with_column("value", ask(job, questions.DUPLICATES, col("movieinfo"))))


def filter_reviews(job: Job) -> Rows:
    """A sentence about each review that recommends its film."""
    both = written("movietitle: {}\nreviewcontent: {}", col("movietitle"), col("reviewcontent"))
    verdict = ask(job, questions.FILTER, both, Recommended)
    kept = table(job).with_column("verdict", verdict).where(col("verdict")["recommended"])
    return values(kept.with_column("value", ask(job, questions.MAP, col("reviewcontent"))))


def classify(job: Job) -> Rows:
    """The label of each review."""
    answers = ask(job, questions.CLASSIFY, col("reviewcontent"), Labelled)
    asked = table(job).with_column("answer", answers)
    return values(asked.with_column("value", col("answer")["mood"]))


def extract(job: Job) -> Rows:
    """Typed values of each review."""
    said = "; ".join(f"{name}: {meaning}" for name, meaning in questions.FIELDS.items())
    answers = ask(job, f"Extract {said}", col("reviewcontent"), Extracted)
    return values(table(job).with_column("value", answers))


def summarize(job: Job) -> Rows:
    """A summary of the reviews of each film."""
    together = table(job).groupby("movietitle").agg(col("reviewcontent").list_agg())
    text = col("reviewcontent").list_join("\n")
    return values(together.with_column("value", ask(job, questions.GROUPS, text)), "movietitle")


ASKING = {
    "map": map_reviews,
    "duplicates": map_films,
    "filter": filter_reviews,
    "classify": classify,
    "extract": extract,
    "groups": summarize,
}

if __name__ == "__main__":
    main(ASKING)
