"""Scenarios as text: what happens to an engine, line by line, and what must be so by then.

A file holds titles and, indented below each, its lines. `limits` and `policies` come first; a
scenario runs under each of its policies. Options are written NAME=VALUE, without spaces. A prompt
is tokens, ranges of tokens (0:9), outputs of requests so far ($0), and independent spans in
brackets. `= NAME VALUE` says what is so. At the end all is served, and every request that was not
cancelled must have the answer that it has alone.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Iterator
from math import exp, fsum
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from benchmarks.baselines import make_policy
from relquery.config import POLICIES, PolicyName
from relquery.engine.cost import LinearCost
from relquery.engine.requests.request import Draw, Request
from relquery.engine.scheduling.policies.catalogue import PolicySettings
from relquery.prompt import Finish
from tests.engine.harness import (
    VOCABULARY,
    BrokenError,
    Harness,
    ToyMatcher,
    answer_of,
    chain_of,
    expected_output,
)

COST = 1e-3, 0.01, 1e-4, 0.03
LABELS: dict[str, Any] = {
    **{"labels": ((1, 2), (1, 3, 4), (1, 3, 5), (6,), (6, 7)), "end": frozenset({9})},
    **{"scored": True, "max_tokens": 9},
}
ERRORS = {"": BrokenError, "interrupt": KeyboardInterrupt}


class Scenario(NamedTuple):
    title: str
    policies: list[PolicyName]
    limits: dict[str, Any]
    lines: list[str]

    def __str__(self) -> str:
        return self.title

    def run(self, **defaults: Any) -> None:
        for policy in self.policies:
            limits = defaults | self.limits
            answer = drawing(limits.pop("draws")) if "draws" in limits else answer_of
            cost = LinearCost(*limits.pop("cost", COST))
            harness = Harness(answer, make_policy(policy, PolicySettings(cost)), **limits)
            for line in self.lines:
                try:
                    happen(harness, *line.split(" ", 1))
                except BaseException as error:
                    error.add_note(f"{policy}: {line}")
                    raise
            harness.run()
            for request in harness.executor.requests.values():
                if request.finish not in (Finish.CANCELLED, Finish.ERROR):
                    request.max_tokens = max(request.max_tokens, 9 * request.scored)
                    expected = expected_output(request, answer)
                    whole = len(request.output) == len(expected)
                    assert request.output == expected[: len(request.output)]
                    assert fsum(map(exp, request.scores or (0.0,))) == pytest.approx(1)
                    assert whole or request.length == harness.engine.capacity + 1


def paragraphs(file: Path) -> list[tuple[str, list[str]]]:
    """Titles, and the lines indented below each; # begins a comment."""
    found: list[tuple[str, list[str]]] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            found[-1][1].extend([] if line.strip().startswith("#") else [line.strip()])
        elif line and not line.startswith("#"):
            found.append((line, []))
    return found


def scenarios(test_file: str) -> list[Scenario]:
    """Those of the file that lies beside a test."""
    found = []
    for title, lines in paragraphs(Path(test_file).with_name("scenarios.txt")):
        policies, limits = ["sarathi"], dict[str, Any]()
        if lines[0].startswith("policies "):
            policies = lines.pop(0).replace("ALL", " ".join(POLICIES)).split()[1:]
        if lines[0].startswith("limits "):
            limits = options_of(lines.pop(0))
        found.append(Scenario(title, cast("list[PolicyName]", policies), limits, lines))
    return found


def drawing(tokens: tuple[int, ...]) -> Callable[[int, int], int]:
    """Draws these behind a prompt of four tokens, and the last one again and again."""
    return lambda request, position: tokens[min(position - 4, len(tokens) - 1)]


def happen(harness: Harness, what: str, rest: str = "") -> None:
    words = rest.split()
    match what:
        case "submit" | "ask":
            options = made_of(options_of(rest))
            getattr(harness, what)(prompt_of(harness, rest), **options)
        case "score":  # the labels, each after the prompt
            harness.submit(prompt_of(harness, rest), **LABELS | options_of(rest))
        case "rows":  # of a relQuery: group, rows, tokens of each prompt and of its answer
            harness.submit_rows(*map(int, words[:4]), **options_of(rest))
        case "step":
            for _ in range(int(rest or 1)):
                harness.step()
        case "run":
            harness.run()
        case "=":
            found, expected = SAYS[words[0]](harness), literal_eval(rest.partition(" ")[2])
            assert found == expected, words[0]
        case _:
            others(harness, what, rest)


def others(harness: Harness, what: str, rest: str) -> None:
    engine = harness.engine
    match what:
        case "fail":
            harness.fail(ERRORS[rest]())
        case "cancel":
            request = harness.executor.requests[int(rest)]
            assert engine.cancel(request) is (request.finish is Finish.CANCELLED)
            harness.check()
        case "register":  # for all tenants
            engine.commons.register(Request(-1, chain_of(tuple(prompt_of(harness, rest))), 1))
        case "empty":  # the cache of what nobody holds
            engine.pool.evict(engine.pool.total)
        case _:
            raise ValueError(f"nobody knows what {what!r} is")


def made_of(options: dict[str, Any]) -> dict[str, Any]:
    """Draws and sets from what is written."""
    if "grammar" in options:
        options["draw"] = Draw(matcher=matcher_of(options.pop("grammar")))
    if "temperature" in options:
        options["draw"] = Draw(temperature=options.pop("temperature"))
    return options | {"end": frozenset(options.get("end", ()))}


def last_step(harness: Harness) -> list[tuple[int, int]]:
    """Group and tokens of each chunk of the last step, sorted."""
    chunks, requests = harness.executor.steps[-1], harness.executor.requests
    return sorted((requests[chunk.request].group, len(chunk.tokens)) for chunk in chunks)


def of_each(value: Callable[[Any], Any]) -> Callable[[Harness], list[Any]]:
    return lambda harness: [value(request) for request in harness.executor.requests.values()]


SAYS: dict[str, Callable[[Harness], Any]] = {
    "lengths": lambda it: it.lengths,  # tokens of each chunk of each step
    "steps": lambda it: len(it.executor.steps),
    "planned": lambda it: it.planned,
    "draws": lambda it: [[c.draw is not None for c in step] for step in it.executor.steps],
    "last": last_step,
    "prompts": lambda it: {group for group, tokens in last_step(it) if tokens > 1},
    "begun": lambda it: {r.group for r in it.executor.requests.values() if r.cached is not None},
    "ended": lambda it: {r.group for r in it.executor.requests.values()} - {*it.engine.relqueries},
    "computed": lambda it: it.executor.computed,
    "held": lambda it: it.engine.pool.held,
    "evicted": lambda it: it.engine.pool.evict(100),
    "waiting": lambda it: [request.id for request in it.engine.waiting],
    "running": lambda it: [request.id for request in it.engine.running],
    "finished": lambda it: [request.id for request in it.finished],
    "scored": of_each(lambda request: request.scores is not None),
    "hits": lambda it: sorted(request.cached or 0 for request in it.executor.requests.values()),
    "cached": of_each(lambda request: request.cached),
    "blocks": of_each(lambda request: len(request.blocks)),
    "outputs": of_each(lambda request: request.output),
    "answered": of_each(lambda request: len(request.output)),
    "ends": of_each(lambda request: request.finish and request.finish.name),
    "errors": of_each(lambda request: request.error),
}


def options_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in re.findall(r"(\w+)=(\S+)", text):
        try:
            found[name] = literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def matcher_of(grammar: str) -> ToyMatcher:
    """Places parted by bars: the tokens that may stand there, E for the end, * for any; and where
    it fails, after a colon."""
    places, _, fails = str(grammar).partition(":")
    kinds = {"*": tuple(range(VOCABULARY)), "E": (VOCABULARY,)}
    found = [
        kinds.get(place) or tuple(VOCABULARY if t == "E" else int(t) for t in place)
        for place in places.split("|")
    ]
    return ToyMatcher(tuple(found), int(fails) if fails else None)


def prompt_of(harness: Harness, text: str) -> list[Any]:
    words = iter(re.findall(r"[()]|[^\s()]+", re.sub(r"\w+=\S+", "", text)))

    def parts() -> Iterator[Any]:
        for word in words:
            if word == ")":
                return
            if word == "(":
                yield tuple(parts())
            elif word.startswith("$"):
                yield from harness.executor.requests[int(word[1:])].output
            else:
                first, _, stop = word.partition(":")
                yield from range(int(first), int(stop or int(first) + 1))

    return list(parts())
