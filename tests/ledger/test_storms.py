"""Storms of processes on one ledger: over all of them, each question is paid for once."""

from __future__ import annotations

import random
import signal
import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests.ledger.crowd import COUNT, crowd
from tests.ledger.stored import stored

pytestmark = pytest.mark.long

PATIENCE = 120.0  # seconds that a storm may take on a busy machine


def requests(log: Path) -> dict[int, list[tuple[int, bool]]]:
    """Who has asked each question, and whether that failed."""
    found: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for line in log.read_text().splitlines():
        place, process, failed = map(int, line.split())
        found[place].append((process, bool(failed)))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_each_question_is_asked_once_whatever_the_orders(tmp_path: Path, seed: int) -> None:
    path, log = tmp_path / "answers.db", tmp_path / "log"
    with crowd(path, log, 6, seed, fails=0) as processes:
        for one in processes:
            one.join(PATIENCE)
        assert [one.exitcode for one in processes] == [0] * 6
    asked = requests(log)
    assert {place: len(who) for place, who in asked.items()} == dict.fromkeys(range(COUNT), 1)
    assert len({process for who in asked.values() for process, _ in who}) > 1
    assert stored(path) == COUNT


def test_only_failures_are_asked_again(tmp_path: Path) -> None:
    path, log = tmp_path / "answers.db", tmp_path / "log"
    with crowd(path, log, 4, seed=7, fails=0.2) as processes:
        for one in processes:
            one.join(PATIENCE)
        assert [one.exitcode for one in processes] == [0] * 4
    for who in requests(log).values():
        assert [failed for _, failed in who] == [True] * (len(who) - 1) + [False]


@pytest.mark.parametrize("seed", range(3))
def test_only_what_a_killed_process_was_asking_is_asked_again(tmp_path: Path, seed: int) -> None:
    path, log, rng = tmp_path / "answers.db", tmp_path / "log", random.Random(seed)
    log.touch()
    with crowd(path, log, 6, seed, fails=0) as processes:
        victims = rng.sample(processes, 3)
        for one, after in zip(victims, sorted(rng.sample(range(COUNT), 3)), strict=True):
            end = time.monotonic() + PATIENCE
            while len(requests(log)) < after and time.monotonic() < end:
                time.sleep(0.001)
            one.kill()
        for one in processes:
            one.join(PATIENCE)
        ended = {one.pid: one.exitcode for one in processes}
    killed = {process for process, code in ended.items() if code == -signal.SIGKILL}
    assert set(ended.values()) <= {0, -signal.SIGKILL}
    assert killed
    assert killed <= {one.pid for one in victims}
    asked = requests(log)
    assert set(asked) == set(range(COUNT))
    for who in asked.values():
        assert len({process for process, _ in who} - killed) <= 1
        assert len(who) == len({process for process, _ in who})
    assert stored(path) == COUNT
