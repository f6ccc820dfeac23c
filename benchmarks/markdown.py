"""Shared by all benchmark documents: heads, tables, figures and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Say


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def head(name: str, run: dict[str, Any], seed: int) -> Iterator[str]:
    """The title, and when, how and where it was run. run: the result of harness.document."""
    yield f"# `scripts/bench {name}`"
    yield ""
    yield from measured(run, seed)


def measured(run: dict[str, Any], seed: int) -> Iterator[str]:
    """When, how and where it was run. run: the result of harness.document."""
    machine = run["machine"]
    yield f"{run['date']}, `{run['command']}`, seed {seed}, on {machine['processor']},"
    yield f"threads: {machine['threads']}, Python {machine['python']}, torch {machine['torch']},"
    yield f"kernels for {machine['target']}. Written by that command."
    yield ""


def figures(run: dict[str, Any]) -> Iterator[str]:
    """A run's figures, and last their goals, which only we have set. run: the result of
    harness.document."""
    yield from table(
        ("figure", "value", "measured", "goal"),
        [
            (
                f"`{name}`",
                "-" if figure["value"] is None else f"{figure['value']:.3g}",
                figure["note"],
                _goal(figure),
            )
            for name, figure in run["figures"].items()
        ],
    )


def _goal(figure: dict[str, Any]) -> str:
    goal, verdict = figure["goal"], figure["verdict"]
    if figure["holds"] is None:
        return verdict if goal == "-" else f"{goal}, {verdict}"
    return goal if figure["holds"] else f"{goal}, **missed**"


def draw(plot: Callable[[Path], None], path: Path, say: Say) -> bool:
    """Draw a picture; returns whether there is one, because a base install cannot draw."""
    try:
        plot(path)
    except ImportError:
        say("No picture: matplotlib is not installed. Install it with: pip install relquery[bench]")
        return False
    say(f"wrote {path}")
    return True
