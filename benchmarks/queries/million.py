"""Planning a query over a million rows, on a model that answers at once."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part
from benchmarks.queries.sizes import FULL, Sizes, choose
from benchmarks.templates import template
from relquery.backends.base import Backend
from relquery.connection import connect
from relquery.prompt import Answer, Finish, Prompt, Sampling

WORDS = template("queries")

SECONDS_GOAL, GIB_GOAL = 60.0, 3.0
"""Seconds: on the clock, for a million prompts."""
COLUMNS = ("rows", "calls", "planning", "streaming", "results", "wall", "peak_gib")


@dataclass(slots=True)
class Million(Part):
    """The part. found: by query, see `million.measure`."""

    name = "million"
    title = "A million rows"
    sizes: Sizes = FULL
    found: dict[str, Mapping[str, float]] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.sizes = choose(settings.quick)
        for query in QUERIES:
            self.found[query] = figures_of = measure(self.sizes.rows_planned, query)
            say(f"{query}: {figures_of}")
            yield from figures(query, figures_of)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("million", rows=self.sizes.rows_planned)
        yield from table(
            ("query", *COLUMNS),
            [
                (
                    query,
                    *(
                        f"{figures_of[column]:,.{2 * (column not in _COUNTS)}f}"
                        for column in COLUMNS
                    ),
                )
                for query, figures_of in self.found.items()
            ],
        )


def figures(query: str, at: Mapping[str, float]) -> Iterator[Figure]:
    """Seconds for a million prompts, and the memory at its peak."""
    seconds = at["wall"] / at["calls"] * 1e6
    processor = at["planning"] + at["streaming"] + at["results"]
    took = f"{at['wall']:.1f} s on the clock, {processor:.1f} s of the processor"
    note = f"{took}, for {at['calls']:,.0f} prompts"
    yield Figure(f"million_{query}_seconds", seconds, SECONDS_GOAL, at_least=False, note=note)
    note = f"{at['rows']:,.0f} rows of the result, {at['calls']:,.0f} calls"
    yield Figure(f"million_{query}_gib", at["peak_gib"], GIB_GOAL, False, note, any_size=True)


_COUNTS = ("rows", "calls")


GIB = 2**30
FIELDS = "genre, title, synopsis, score, review"
QUERIES = {
    "projection": f"SELECT LLM('Is it good?', {FIELDS}) FROM t",
    "filter": f"SELECT LLM('Summarise it.', {FIELDS}) FROM t "
    f"WHERE LLM('Is it good?', {FIELDS}) = 'Yes'",
}
_TITLES = 20_000
_WORDS = (
    'the story was not quite as good but its music, light and “sound” made every long scene a "joy"'
)


def reviews(rows: int, seed: int = 0) -> pa.Table:
    """Reviews of films: genre and synopsis follow from the title, and 97% of the texts, of about
    300 characters, are distinct. Titles are Zipf-distributed.
    """
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(1 / np.arange(1, _TITLES + 1))
    title = np.searchsorted(cumulative, rng.random(rows) * cumulative[-1])
    titles = np.arange(_TITLES)
    return pa.table(
        {
            "genre": _named("Genre", titles % 17).take(pa.array(title)),
            "title": _named("The film number", titles).take(pa.array(title)),
            "synopsis": _texts(rng, _TITLES, 35).take(pa.array(title)),
            "score": rng.integers(1, 11, rows),
            "review": _repeated(_texts(rng, rows, 60), rng),
        }
    )


def _named(name: str, numbers: np.ndarray) -> pa.Array:
    return pa.array([f"{name} {number}" for number in numbers.tolist()])


def _texts(rng: np.random.Generator, count: int, words: int) -> pa.Array:
    known = _WORDS.split()
    drawn = rng.integers(0, len(known), (count, words)).astype(np.uint8)
    return pa.array([" ".join([known[word] for word in row]) for row in drawn])


def _repeated(texts: pa.Array, rng: np.random.Generator) -> pa.Array:
    """Texts of which 3% repeat another."""
    places = np.arange(len(texts))
    again = rng.random(len(texts)) < 0.03
    places[again] = rng.integers(0, len(texts), int(again.sum()))
    return texts.take(pa.array(places))


class AtOnce(Backend):
    """Reads every prompt to its end and answers it at once: Yes for nine of ten.

    asked, answered: process seconds when the first prompt of each call was asked for, and when the
    last was answered. characters: of all prompts.
    """

    name = "at once"

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.answered: list[float] = []
        self.characters = 0

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        """See Backend."""
        del sampling
        self.asked.append(time.process_time())
        for index, prompt in enumerate(prompts):
            size = sum([len(str(span.content)) for span in prompt])
            self.characters += size
            text = "No" if size % 10 == 0 else "Yes"
            yield index, Answer(text, Finish.STOP, prompt_tokens=size // 4, output_tokens=1)
        self.answered.append(time.process_time())


def measure(rows: int, query: str = "projection") -> dict[str, float]:
    """One of QUERIES in a fresh process, with the ledger in memory.

    Processor seconds of both threads, so that other programs count little: planning (until the
    first prompt is asked for, without the solver's compiling), streaming (until the last prompt is
    answered), results (after that), each summed over the stages; wall: seconds on the clock.
    peak_gib: memory that the process held at most, Python and its packages included.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reviews.parquet"
        make = [sys.executable, "-m", __spec__.name, "make", str(rows), str(file)]
        subprocess.run(make, check=True)
        run = [sys.executable, "-m", __spec__.name, "run", query, str(file)]
        done = subprocess.run(run, check=True, capture_output=True, text=True)
    figures_of: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures_of


def timed(file: str, query: str) -> dict[str, float]:
    """See `measure`; in this process, once compiled."""
    backend = AtOnce()
    with connect(backend, form="json") as connection:
        connection.register("few", reviews(1_000))
        connection.sql(QUERIES[query].replace("FROM t", "FROM few"))  # compiles
        backend.asked.clear()
        backend.answered.clear()
        backend.characters = 0
        connection.sql(f"CREATE VIEW t AS SELECT * FROM '{file}'")
        clock, begin = time.perf_counter(), time.process_time()
        result = connection.sql(QUERIES[query])
        end, wall = time.process_time(), time.perf_counter() - clock
    streaming = sum(backend.answered) - sum(backend.asked)
    results = end - backend.answered[-1]
    return {
        "rows": len(result),
        "calls": sum(stage.calls for stage in result.report.stages),
        "phr": result.report.stages[0].phr,
        "planning": end - begin - streaming - results,
        "streaming": streaming,
        "results": results,
        "wall": wall,
        "peak_gib": peak_bytes() / GIB,
    }


def peak_bytes() -> int:
    """Bytes that this process held at most, without what the process that started it held."""
    status = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line for line in status if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", rows, file]:
            pq.write_table(reviews(int(rows)), file)
        case ["run", query, file]:
            print(json.dumps(timed(file, query)))
