"""What is compared: our requests, tokens and rows with those of the better peer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from benchmarks.harness import Figure
from benchmarks.peers.environments import AS_JSON, OURS
from benchmarks.peers.run import Measured
from benchmarks.peers.tasks import Task

By = Mapping[str, Measured]
"""What each side did, by its name."""
Tokens = Mapping[str, int]
"""Prompt tokens by side."""


def figures(task: Task, by: By, tokens: Tokens | None) -> Iterator[Figure]:
    """Those of one task. tokens: None without a tokenizer."""
    ours = by[OURS]
    peers = {name: each for name, each in by.items() if name not in (OURS, AS_JSON)}
    whole = {name: each for name, each in peers.items() if not ours.held - each.held}
    counts = {name: each.requests for name, each in by.items()}
    yield _over(f"{task.name}: requests over the better peer's", counts, whole)
    if tokens is None:
        name = f"{task.name}: tokens over the better peer's"
        yield Figure(name, None, 1.0, at_least=False, note="no tokenizer")
    else:
        yield _over(f"{task.name}: tokens over the better peer's", tokens, whole)
        if AS_JSON in by:
            name = f"{task.name}: tokens as JSON over the better peer's"
            yield replace(_over(name, tokens, whole, AS_JSON), goal=None)
    had = frozenset[str]().union(*(peer.held for peer in peers.values()))
    both = [by[name] for name in (OURS, AS_JSON) if name in by]
    behind = frozenset[str]().union(*((had - each.held) | each.wrong for each in both))
    yield Figure(
        f"{task.name}: rows wrong, or lost that a peer has",
        len(behind),
        0,
        at_least=False,
        note=_each(by, lambda one: f"{len(one.held):,} right, {len(one.wrong):,} wrong"),
        any_size=True,
    )
    yield Figure(
        f"{task.name}: client CPU over the better peer's",
        ours.process / max(1e-9, min(peer.process for peer in (whole or peers).values())),
        None,
        note=_each(by, lambda one: f"{one.process:.1f} s"),
    )


def _over(
    name: str, counts: Mapping[str, int], whole: Mapping[str, Measured], side: str = OURS
) -> Figure:
    """Ours over the least of peers that have all rows that we have; more rows need more."""
    note = "; ".join(f"{side} {count:,}" for side, count in counts.items())
    if not whole:
        note += "; no peer has all rows that we have"
        return Figure(name, None, 1.0, at_least=False, note=note)
    least = min(counts[side] for side in whole)
    value = counts[side] / least if least else float(1 + counts[side])
    return Figure(name, value, 1.0, at_least=False, note=note, any_size=True)


def _each(by: By, say: Callable[[Measured], str]) -> str:
    return "; ".join(f"{name} {say(measured)}" for name, measured in by.items())


def rows(
    tasks: Sequence[Task], found: Mapping[str, By], tokens: Mapping[str, Tokens]
) -> Iterator[tuple[str, ...]]:
    """Lines of the table of a part: one of each task and side."""
    for task in tasks:
        for name, measured in found.get(task.name, {}).items():
            runs = f" ({' + '.join(f'{run:,}' for run in measured.runs)})" if measured.runs else ""
            yield (
                task.name,
                name,
                f"{measured.requests:,}{runs}",
                f"{measured.refused:,}",
                f"{measured.repeated:,}",
                f"{tokens[task.name][name]:,}" if task.name in tokens else "-",
                f"{len(measured.held):,} / {len(measured.wrong):,} / {len(measured.lost):,}",
                f"{measured.seconds:.1f}",
                f"{measured.process:.1f} ({measured.cpu:.1f})",
                f"{measured.peak:,}",
            )


HEAD = (
    "task", "side", "requests", "refused", "repeated", "prompt tokens",
    "rows right / wrong / lost", "seconds", "CPU seconds", "at once",
)  # fmt: skip
