"""relquery: SQL over the provider's backend, with a ledger where there is a store."""

from __future__ import annotations

import warnings
from typing import Any

import relquery as rq
from benchmarks.peers.programs import questions
from benchmarks.peers.programs.job import CONCURRENCY, RETRIES, Job, Rows, main
from relquery.errors import PartialResultWarning


def rows_of(job: Job, statement: str, given: dict[str, Any], *first: str) -> Rows:
    """The second column by the first, without rows that have no value.

    first: statements to run before.
    """
    warnings.simplefilter("ignore", PartialResultWarning)
    with rq.connect(
        model=f"openai:{job.model}",
        base_url=job.url,
        api_key="none",
        max_concurrency=CONCURRENCY,
        max_retries=RETRIES,
        ledger=":memory:" if job.store is None else f"{job.store}/run.db",
        form=job.form,
    ) as con:
        con.register("movies", f"{job.table}/rows.parquet")
        for before in first:
            con.sql(before)
        result = con.sql(statement, given)
        return {str(key): value for key, value in result if value is not None}


def map_reviews(job: Job) -> Rows:
    """A sentence about each review."""
    return rows_of(job, "SELECT id, LLM($ask) FROM movies", {"ask": questions.MAP})


def map_films(job: Job) -> Rows:
    """A sentence about the film of each review."""
    return rows_of(job, "SELECT id, LLM($ask) FROM movies", {"ask": questions.DUPLICATES})


def filter_reviews(job: Job) -> Rows:
    """A sentence about each review that recommends its film."""
    statement = "SELECT id, LLM($ask) FROM movies WHERE AI_FILTER($passes)"
    return rows_of(job, statement, {"ask": questions.MAP, "passes": questions.FILTER})


def classify(job: Job) -> Rows:
    """The label of each review."""
    statement = "SELECT id, AI_CLASSIFY(reviewcontent, $labels, instruction := $ask) FROM movies"
    given = {"labels": list(questions.LABELS), "ask": questions.CLASSIFY}
    return rows_of(job, statement, given)


def extract(job: Job) -> Rows:
    """Typed values of each review."""
    labels = ", ".join(f"'{label}'" for label in questions.LABELS)
    fields = "mood mood NOT NULL, stars INTEGER NOT NULL"
    statement = f"SELECT id, AI_EXTRACT(reviewcontent, '{fields}') FROM movies"
    return rows_of(job, statement, {}, f"CREATE TYPE mood AS ENUM ({labels})")


def summarize(job: Job) -> Rows:
    """A summary of the reviews of each film."""
    statement = "SELECT movietitle, AI_AGG($ask, reviewcontent) FROM movies GROUP BY movietitle"
    return rows_of(job, statement, {"ask": questions.plain(questions.GROUPS)})


ASKING = {
    "map": map_reviews,
    "duplicates": map_films,
    "filter": filter_reviews,
    "classify": classify,
    "extract": extract,
    "groups": summarize,
}


def ready() -> None:
    """Import what a query needs, as the other programs do where they begin; no call is made."""
    with rq.connect(model="openai:none", base_url="http://127.0.0.1:9/v1", api_key="none") as con:
        con.explain("SELECT LLM('Is it good?', a := 1 + 0, b := 2 + 0)")


if __name__ == "__main__":
    ready()
    main(ASKING)
