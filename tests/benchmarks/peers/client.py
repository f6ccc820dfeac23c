"""A side for the tests: a sentence for each review, kept in a file where there is a store."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.peers.programs import questions
from benchmarks.peers.programs.job import CONCURRENCY, Job, Rows, main


def map_reviews(job: Job) -> Rows:
    rows = json.loads(Path(job.table, "rows.json").read_text(encoding="utf-8"))
    file = None if job.store is None else Path(job.store, "answers")
    lines = file.read_text().splitlines() if file is not None and file.exists() else []
    known: Rows = dict(json.loads(line) for line in lines)

    def ask(text: str) -> str | None:
        if text in known:
            return str(known[text])
        content = f"{questions.plain(questions.MAP)}\n{text}"
        body = {"model": job.model, "messages": [{"role": "user", "content": content}]}
        head = {"Content-Type": "application/json"}
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{job.url}/chat/completions", data, head)
        try:
            with urllib.request.urlopen(request) as reply:
                said = str(json.load(reply)["choices"][0]["message"]["content"])
        except urllib.error.HTTPError:
            return None
        if file is not None:
            with file.open("a") as kept:
                kept.write(json.dumps([text, said]) + "\n")
        return said

    with ThreadPoolExecutor(CONCURRENCY) as pool:
        answers = list(pool.map(ask, [row["reviewcontent"] for row in rows]))
    pairs = zip(rows, answers, strict=True)
    return {row["id"]: answer for row, answer in pairs if answer is not None}


def forget(job: Job) -> Rows:
    """The same without a store."""
    return map_reviews(Job(job.kind, job.url, job.model, job.table))


def fail(job: Job) -> Rows:
    raise ValueError(f"no rows of {job.kind}")


if __name__ == "__main__":
    main({"map": map_reviews, "duplicates": forget, "groups": fail})
