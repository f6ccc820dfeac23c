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


@pytest.mark.parametrize(
    ("size", "seed", "fails"), [(6, 0, 0.0), (6, 1, 0.0), (6, 2, 0.0), (4, 7, 0.2)]
)
def test_each_question_is_asked_until_it_is_answered_whatever_the_orders(
    path: Path, tmp_path: Path, size: int, seed: int, fails: float
) -> None:
    log = tmp_path / "log"
    with crowd(path, log, size, seed, fails=fails) as processes:
        for one in processes:
            one.join(PATIENCE)
        assert [one.exitcode for one in processes] == [0] * size
    asked = requests(log)
    assert set(asked) == set(range(COUNT))
    assert fails or len({process for who in asked.values() for process, _ in who}) > 1
    for who in asked.values():  # only failures are asked again
        assert [failed for _, failed in who] == [True] * (len(who) - 1) + [False]
        assert fails or len(who) == 1
    assert stored(path) == COUNT


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
