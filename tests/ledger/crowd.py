"""Processes that ask the same questions through one ledger, each in an order of its own."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from relquery.ledger import Keys, Ledger, StoredCall, turns
from relquery.prompt import Answer, Finish, Sampling, Span

START = multiprocessing.get_context("forkserver")
"""Processes begin in milliseconds, with this module imported."""
START.set_forkserver_preload(["tests.ledger.crowd"])

COUNT, PARTS, SECONDS = 60, 4, 0.004
PROMPTS = [(Span(f"question {number}"),) for number in range(COUNT)]


def ask(path: Path, log: Path, seed: int, fails: float) -> None:
    """Ask all, in calls of some each. Each request is a line of the log: which, and by whom.

    fails: the share of requests that fail, which are asked again, as a person would who sees
    errors in rows.
    """
    rng, keys = random.Random(seed), Keys.of("m", PROMPTS, Sampling())
    call = StoredCall("m", Sampling())
    with closing(Ledger.open(path)) as ledger, log.open("a") as lines:
        while len(found := ledger.find(keys)) < COUNT:
            left = [at for at in range(COUNT) if at not in found]
            rng.shuffle(left)
            for some in np.array_split(np.array(left, np.int64), PARTS):
                prompts = [PROMPTS[at] for at in some.tolist()]
                with turns(prompts, some, ledger, keys, call) as parts:
                    for turn in parts:
                        for index, place in enumerate(turn.places.tolist()):
                            is_failed = rng.random() < fails
                            lines.write(f"{place} {os.getpid()} {is_failed:d}\n")
                            lines.flush()
                            time.sleep(rng.random() * SECONDS)
                            failed = Answer(None, Finish.ERROR, "failed")
                            done = Answer(f"answer {place}", Finish.STOP)
                            turn.on_answer(index, failed if is_failed else done)
        assert {found[at].text for at in range(COUNT)} == {f"answer {at}" for at in range(COUNT)}


@contextmanager
def crowd(path: Path, log: Path, size: int, seed: int, fails: float) -> Iterator[list[BaseProcess]]:
    """Some processes that `ask`; those still running at the end are killed."""
    some = [
        START.Process(target=ask, args=(path, log, 1000 * seed + number, fails))
        for number in range(size)
    ]
    for one in some:
        one.start()
    try:
        yield list(some)
    finally:
        for one in some:
            with suppress(ValueError):
                one.kill()
                one.join()
