"""Our engine beside both peers: the same files, token ids and threads."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import ClassVar

from benchmarks.cpu_peers.environments import LLAMA_CPP, PEERS, pythons
from benchmarks.cpu_peers.files import Weighed, requantise, weigh, write_random
from benchmarks.cpu_peers.jobs import ANSWER, TEXTS, filter_jobs, random_measures, same_answers
from benchmarks.cpu_peers.plot import plot
from benchmarks.cpu_peers.sizes import BILLION, QUICK, QUICK_SHAPE, SMOLLM2, Sizes
from benchmarks.engine.jobs import Job
from benchmarks.engine.limits import Machine, measure_machine
from benchmarks.engine.sides import (
    FILTER,
    OURS,
    TABLE_ORDER,
    Raced,
    Seat,
    race,
    race_orders,
    started,
)
from benchmarks.engine.worker import EXACT
from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.parts import Part, Plot
from benchmarks.peers.environments import DEFAULT
from benchmarks.templates import template
from relquery.model.formats.gguf import read_gguf
from relquery.model.load import DTYPES
from relquery.model.native_model import KINDS
from relquery.model.text.gguf_tokenizer import read_gguf_tokenizer

WORDS = template("cpu_peers")
MODEL = Path(".real-models/smollm2")
"""A folder with SmolLM2 as model.gguf, and its tokenizer."""
ITS_FORMAT = "Q4_1"
PICTURE = "cpu_peers_filter.png"
FASTEST = "fastest"
"""The number format of peers, which choose it."""
TITLES = {peer.name: peer.title for peer in PEERS}
COMPUTED = {"F16": "bfloat16", "Q8_0": "int8", "Q4_1": "int8"}
"""What the peers multiply in, by the format of a file: with these of ours they are compared."""
GOALS = {FILTER: 1.3, TABLE_ORDER: 4.0}
"""The least ratios; 1 for all other jobs."""


def ours_in(dtype: str) -> str:
    """The name of our side that computes in a number format."""
    return f"relquery {dtype}"


def our_dtypes(form: str, beside: Collection[str]) -> list[str]:
    """What our side computes a file in, as far as this version can."""
    wanted = dict.fromkeys((*beside, COMPUTED[form]))
    return [dtype for dtype in wanted if dtype in DTYPES]


@dataclass(slots=True)
class Beside(Part):
    """The part. raced: all that was measured. weighed: by format of a file; machines: by format of
    numbers."""

    full: ClassVar[Sizes]
    quick: ClassVar[Sizes]

    sizes: Sizes = SMOLLM2
    raced: list[Raced] = field(default_factory=list)
    weighed: dict[str, Weighed] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        self.sizes = sizes = self.quick if settings.quick else self.full
        if not (MODEL / "model.gguf").exists():
            note = f"without {MODEL}; run scripts/real-models smollm2"
            yield Figure(f"{self.name}_prefill", None, 1.0, note=note)
            return
        interpreters = pythons(settings.peers or DEFAULT, say)
        self.machines = {
            dtype: measure_machine(kind, sizes.seconds) for dtype, kind in KINDS.items()
        }
        jobs = filter_jobs(MODEL, settings.data, sizes.rows)
        for form in sizes.formats:
            with TemporaryDirectory() as temporary:
                folder = Path(temporary)
                file = self._file(folder, form, settings.seed)
                self.weighed[form] = weigh(read_gguf(file))
                say(f"{form}: {self.weighed[form]}")
                if form == sizes.formats[0]:
                    yield from self._same(interpreters, file, form)
                for raced in self._race(interpreters, file, form, jobs, settings.seed):
                    self.raced.append(raced)
                    sides = "; ".join(f"{each} {raced.shown(each)}" for each in raced.seconds)
                    say(f"{raced.name}, {form}: {sides}")
                    yield from figures(self.name, raced, interpreters)

    def _file(self, folder: Path, form: str, seed: int) -> Path:
        source = MODEL / "model.gguf"
        path = folder / "model.gguf"
        if self.sizes.shape is not None:
            write_random(source, path, self.sizes.shape, form, seed)
        elif form == ITS_FORMAT:
            return source
        else:
            requantise(source, path, form)
        return path

    def _same(self, found: dict[str, Path], file: Path, form: str) -> Iterator[Figure]:
        """Whether the peers answer as ours does in float32, which rounds nothing of the file's."""
        tokenizer = read_gguf_tokenizer(read_gguf(file).metadata, str(file))
        job = Job([list(each) for each in tokenizer.encode(list(TEXTS))], ANSWER)
        seats = [Seat(OURS, OURS, Path(sys.executable), EXACT, self.sizes.cache)]
        seats += [Seat(name, name, each, EXACT, self.sizes.cache) for name, each in found.items()]
        with started(seats, file, file.parent) as (own, *peers):
            _, expected = own.answer(job)
            for peer in peers:
                same = same_answers(expected, peer.answer(job)[1])
                # llama.cpp multiplies such weights in 8 bits, whatever it is told.
                goal = None if peer.name == LLAMA_CPP and COMPUTED[form] == "int8" else 1.0
                note = f"{same} of {len(TEXTS)} answers of {ANSWER} tokens"
                name = f"{self.name}_same_answers_{form}_{peer.name}"
                yield Figure(name, same / len(TEXTS), goal, note=note, any_size=True)

    def _race(
        self, found: dict[str, Path], file: Path, form: str, jobs: dict[str, Job], seed: int
    ) -> Iterator[Raced]:
        sizes = self.sizes
        seats = [
            Seat(ours_in(dtype), OURS, Path(sys.executable), dtype, sizes.cache)
            for dtype in our_dtypes(form, sizes.dtypes)
        ]
        seats += [Seat(name, name, each, FASTEST, sizes.cache) for name, each in found.items()]
        vocabulary = len(read_gguf(file).metadata["tokenizer.ggml.tokens"])
        with started(seats, file, file.parent) as sides:
            for each in random_measures(sizes, vocabulary, seed):
                is_long = each.name == "prefill"
                rounds, warm = (sizes.prefills, 0) if is_long else (sizes.rounds, sizes.warm)
                yield race(sides, each, form, rounds, warm)
            if jobs:
                yield from race_orders(sides, jobs, form, sizes.rounds, sizes.warm)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        if not self.raced:
            return
        for picture in drawn:
            yield from (f"![A filter's seconds beside those of both peers]({picture})", "")
        sizes = self.sizes
        yield WORDS.block(
            self.name,
            count=sizes.prefill[0],
            length=sizes.prefill[1],
            start=sizes.start,
            steps=sizes.steps,
            rows=sizes.rows,
            asked=sizes.asked,
            passages=sizes.passages,
            passage=sizes.passage,
            system=sizes.system,
            question=sizes.question,
            rounds=sizes.rounds,
            prefills=sizes.prefills,
        )
        for form in sizes.formats:
            raced = [each for each in self.raced if each.numbers == form]
            names = list(raced[0].seconds)
            yield from table(
                (form, *(TITLES.get(name, name) for name in names)),
                [(each.name.replace("_", " "), *map(each.shown, names)) for each in raced],
            )
        yield WORDS.block("limit")
        yield from table(
            (
                "file",
                "MB of a step",
                "decode 1 at most",
                *(f"prefill at most, {name}" for name in KINDS),
            ),
            [
                (
                    form,
                    f"{weighed.bytes / 1e6:,.0f}",
                    f"{self._bandwidth / weighed.bytes:,.0f} tokens/s",
                    *(
                        f"{machine.peak / (2 * weighed.layers):,.0f} tokens/s"
                        for machine in self.machines.values()
                    ),
                )
                for form, weighed in self.weighed.items()
            ],
        )

    def _seconds(self, measure: str) -> dict[str, dict[str, float]]:
        """Medians of a measure by side and format; ours in the number format of COMPUTED."""
        raced = [each for each in self.raced if each.name == measure]
        ours = {each.numbers: each.seconds[ours_in(COMPUTED[each.numbers])] for each in raced}
        return {
            title: {form: median(each) for form, each in rounds.items()}
            for title, rounds in (
                ("relquery", ours),
                *(
                    (title, {each.numbers: each.seconds[name] for each in raced})
                    for name, title in TITLES.items()
                    if all(name in each.seconds for each in raced)
                ),
            )
        }

    @property
    def _bandwidth(self) -> float:
        return max(machine.bandwidth for machine in self.machines.values())


def figures(part: str, raced: Raced, peers: Collection[str]) -> Iterator[Figure]:
    """Our side over each peer, in the number format that the peers multiply in."""
    dtype = COMPUTED[raced.numbers]
    ours = ours_in(dtype)
    for peer in peers:
        note = f"{raced.shown(ours)} / {raced.shown(peer)}"
        if dtype not in DTYPES:
            note = f"relquery does not multiply in {dtype}"
        name = f"{part}_{raced.name}_{raced.numbers}_over_{peer}"
        yield Figure(name, raced.ratio(peer, ours), GOALS.get(raced.name, 1.0), note=note)


class Smollm2(Beside):
    """The part."""

    name = "smollm2"
    title = "SmolLM2-135M"
    full = SMOLLM2
    quick = QUICK

    def pictures(self) -> Mapping[str, Plot]:
        """See Part."""
        ordered, written = self._seconds(FILTER), self._seconds(TABLE_ORDER)
        if not written["relquery"]:
            return {}
        del written["relquery"]
        return {PICTURE: lambda path: plot(ordered, written, self.sizes.rows, path)}


class Billion(Beside):
    """The part."""

    name = "llama_1b"
    title = "A Llama of a billion weights"
    full = BILLION
    quick = replace(QUICK, formats=("Q8_0",), shape=QUICK_SHAPE)
