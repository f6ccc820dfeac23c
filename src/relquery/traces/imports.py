"""Traces that others have published, as ours: of Azure, BurstGPT, Mooncake, in ShareGPT's form.

Each of their requests becomes a relQuery of one row. The first three tell no texts. Mooncake's tell
which blocks of 512 tokens a prompt begins with, so what prompts share is known; in the other two
they share nothing. ShareGPT's form tells texts and no times.

An engine does not know how long an answer will be. So every request may have as many tokens as the
longest answer of the trace.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from relquery.errors import TableError
from relquery.traces.simulate import approximate_tokens
from relquery.traces.trace import HashedPrompt, TracedQuery

MOONCAKE_BLOCK = 512
"""Tokens of a block of Mooncake's traces."""


@dataclass(frozen=True, slots=True)
class PublishedRequest:
    """A request of a published trace. arrival: in seconds; None if the trace has no times. answer:
    its tokens."""

    arrival: float | None
    prompt: str | HashedPrompt
    answer: int


Reader = Callable[[Mapping[str, Any], int], PublishedRequest | None]
"""Reads one record with its number. None for one that is left out: without an answer."""


def import_trace(
    path: Path, *, rate: float = 1.0, first: int | None = None, seed: int = 0
) -> list[TracedQuery]:
    """Read a published trace; arrivals count from its first request.

    rate: requests per second, for a form without times; they arrive at random (Poisson). seed: for
    these. first: only so many records.

    Raises TableError for an unknown form, and with its number for a record that cannot be read.
    """
    try:
        name, read, records = _open(path)
        asked = [
            request
            for number, record in enumerate(islice(records, first), 1)
            if (request := _read(read, record, number, path)) is not None
        ]
    except (OSError, ValueError, csv.Error) as error:
        raise TableError(f"The trace {path} cannot be read: {error}.") from error
    if not asked:
        raise TableError(f"The trace {path} has no requests with an answer.")
    draw, clock, most = random.Random(seed), 0.0, max(request.answer for request in asked)
    begin = min((request.arrival for request in asked if request.arrival is not None), default=0.0)
    queries = []
    for request in asked:
        clock += draw.expovariate(rate)
        arrival = clock if request.arrival is None else request.arrival - begin
        text, hashed = (
            (request.prompt, ()) if isinstance(request.prompt, str) else ("", (request.prompt,))
        )
        answers = (request.answer,)
        queries.append(
            TracedQuery(arrival, name, path.stem, "", (text,), most, answers, hashed=hashed)
        )
    return sorted(queries, key=lambda query: query.arrival)


def _read(read: Reader, record: object, number: int, path: Path) -> PublishedRequest | None:
    try:
        if not isinstance(record, Mapping):
            raise TypeError(f"it is {record!r}, not an object")
        request = read(record, number)
        if request is not None and not isfinite(request.arrival or 0.0):
            raise ValueError(f"its time is {request.arrival}")
        return request
    except (KeyError, TypeError, ValueError, TableError) as error:
        told = f"{error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise TableError(f"{path}, record {number}: {told}.") from error


def _open(path: Path) -> tuple[str, Reader, Iterator[object]]:
    """The form of a file, by its first record; how a record is read; and all records."""
    if path.suffix == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), [])
        first, records = header, _lines_of_csv(path)
    else:
        first, records = [*_first_of_json(path)], _records_of_json(path)
    for name, (field, read) in _FORMS.items():
        if field in first:
            return name, read, records
    known = ", ".join(f"{name} ('{field}')" for name, (field, _) in _FORMS.items())
    raise TableError(
        f"{path} is not a trace that relquery knows: its records have {', '.join(first) or 'no'} "
        f"fields. Known forms, and a field of each: {known}."
    )


def _lines_of_csv(path: Path) -> Iterator[object]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv.DictReader(file)


def _first_of_json(path: Path) -> Mapping[str, object]:
    first = next(_records_of_json(path), {})
    return first if isinstance(first, Mapping) else {}


def _records_of_json(path: Path) -> Iterator[object]:
    """A list, or one record a line."""
    with path.open(encoding="utf-8-sig") as file:
        if path.suffix == ".json":
            content = json.load(file)
            yield from content if isinstance(content, list) else [content]
        else:
            yield from (json.loads(line) for line in file if line.strip())


def _azure(record: Mapping[str, Any], number: int) -> PublishedRequest | None:
    moment = datetime.fromisoformat(record["TIMESTAMP"])
    seconds = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    return _counted(seconds, record["ContextTokens"], record["GeneratedTokens"], number)


def _burstgpt(record: Mapping[str, Any], number: int) -> PublishedRequest | None:
    moment = float(record["Timestamp"])
    return _counted(moment, record["Request tokens"], record["Response tokens"], number)


def _counted(arrival: float, prompt: str, answer: str, number: int) -> PublishedRequest | None:
    """A request of which only lengths are known; no other one has its tokens."""
    size = int(prompt)
    if not size or not int(answer):
        return None
    return PublishedRequest(arrival, HashedPrompt(size, (number,), size), int(answer))


def _mooncake(record: Mapping[str, Any], number: int) -> PublishedRequest | None:
    size, blocks, answer = record["input_length"], record["hash_ids"], record["output_length"]
    if not size or not answer:
        return None
    prompt = HashedPrompt(int(size), tuple(map(int, blocks)), MOONCAKE_BLOCK)
    return PublishedRequest(float(record["timestamp"]) / 1_000, prompt, int(answer))


def _sharegpt(record: Mapping[str, Any], number: int) -> PublishedRequest | None:
    """The first question of a conversation and its answer, as benchmarks of servers take it."""
    said = record["conversations"]
    if len(said) < 2 or said[0]["from"] not in ("human", "user"):
        return None
    prompt, answer = said[0]["value"], len(approximate_tokens(said[1]["value"]))
    return PublishedRequest(None, prompt, answer) if prompt and answer else None


_FORMS: dict[str, tuple[str, Reader]] = {
    "azure": ("ContextTokens", _azure),
    "burstgpt": ("Request tokens", _burstgpt),
    "mooncake": ("hash_ids", _mooncake),
    "sharegpt": ("conversations", _sharegpt),
}
"""By name: a field that no other form has, and how a record is read."""
