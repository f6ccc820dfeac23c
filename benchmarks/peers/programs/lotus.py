"""LOTUS: its operators over LiteLLM, with its cache on.

The cache is a file where there is a store, and larger than the table. The address goes by the
environment, because the key of the cache holds what the model is called with.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import lotus
import pandas as pd
from lotus.cache import CacheConfig, CacheFactory, CacheType
from lotus.models import LM

from benchmarks.peers.programs import questions
from benchmarks.peers.programs.job import CONCURRENCY, RETRIES, Job, Rows, main

_CACHED = 100_000


def table(job: Job) -> Any:
    """The rows, with the model of the job in LOTUS's settings."""
    os.environ["OPENAI_API_BASE"] = job.url
    kind = CacheType.IN_MEMORY if job.store is None else CacheType.SQLITE
    kept: dict[str, Any] = {} if job.store is None else {"cache_dir": job.store}
    cache = CacheFactory.create_cache(CacheConfig(kind, _CACHED, **kept))
    model = LM(f"openai/{job.model}", max_batch_size=CONCURRENCY, cache=cache, max_retries=RETRIES)
    lotus.settings.configure(lm=model, enable_cache=True)
    rows = json.loads(Path(job.table, "rows.json").read_text(encoding="utf-8"))
    return pd.DataFrame(rows)


def values(frame: Any, column: str, key: str = "id") -> Rows:
    """Those of a column."""
    return dict(zip(frame[key], frame[column], strict=True))


def map_reviews(job: Job) -> Rows:
    """A sentence about each review."""
    return values(table(job).sem_map(questions.MAP), "_map")


def map_films(job: Job) -> Rows:
    """A sentence about the film of each review."""
    return values(table(job).sem_map(questions.DUPLICATES), "_map")


def filter_reviews(job: Job) -> Rows:
    """A sentence about each review that recommends its film."""
    return values(table(job).sem_filter(questions.FILTER).sem_map(questions.MAP), "_map")


def classify(job: Job) -> Rows:
    """The label of each review."""
    labels = ", ".join(questions.LABELS)
    asked = f"{questions.CLASSIFY} Answer with one of these words alone: {labels}."
    return values(table(job).sem_map(asked), "_map")


def extract(job: Job) -> Rows:
    """Typed values of each review."""
    extracted = table(job).sem_extract(["reviewcontent"], dict(questions.FIELDS))
    each = extracted[list(questions.FIELDS)].to_dict("records")
    return dict(zip(extracted["id"], each, strict=True))


def summarize(job: Job) -> Rows:
    """A summary of the reviews of each film."""
    lotus.settings.configure(parallel_groupby_max_threads=CONCURRENCY)
    summaries = table(job).sem_agg(questions.GROUPS, group_by=["movietitle"])
    return values(summaries, "_output", "movietitle")


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
