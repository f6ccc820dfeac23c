"""Executors are lost, and with them nothing that was paid for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.programs import needed
from tests.spark.cluster import DISTINCT, ROWS
from tests.spark.conftest import ROOT
from tests.spark.stand_in import StandIn, standing_in
from tests.sql.conftest import upper_or_length

pytestmark = pytest.mark.long

CONCURRENCY = 4
EXECUTORS = 2


def test_a_killed_executor_repeats_no_call_that_was_answered(tmp_path: Path) -> None:
    needed("java")

    def slowly(query: str, fields: dict[str, Any]) -> str:
        time.sleep(0.1)
        return upper_or_length(query, fields)

    with standing_in(slowly) as server:
        done = _run(server, tmp_path, half_way=lambda: sum(server.inputs.values()) > DISTINCT // 3)
        right, rows, _, errors = json.loads(done)
        assert (right, rows, errors) == (ROWS, ROWS, 0)
        assert len(server.inputs) == DISTINCT
        again = sum(server.inputs.values()) - DISTINCT
        assert again <= CONCURRENCY  # what was in flight on the executor


def test_attempts_of_a_task_that_run_at_once_pay_for_each_input_once(tmp_path: Path) -> None:
    needed("java")

    def slowly(query: str, fields: dict[str, Any]) -> str:
        # One task is slower than the others, so that Spark begins it again.
        kind = int(fields["text"].split()[1]) % 8
        time.sleep(0.5 if kind == 0 else 0.02)
        return upper_or_length(query, fields)

    with standing_in(slowly) as server:
        done = _run(server, tmp_path, "speculate")
        right, rows, calls, errors = json.loads(done)
        assert (right, rows, calls, errors) == (ROWS, ROWS, DISTINCT, 0)
        assert len(server.inputs) == DISTINCT
        assert sum(server.inputs.values()) <= DISTINCT + CONCURRENCY


def _run(
    server: StandIn, folder: Path, *more: str, half_way: Callable[[], bool] | None = None
) -> str:
    """What the program prints. half_way: tells when one of its executors is to be killed.

    Its `python3` is not the one that runs this, as in an environment that nobody has activated.
    """
    own = Path(sys.executable).parent
    path = [each for each in os.environ["PATH"].split(os.pathsep) if Path(each) != own]
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.cluster", server.url, str(folder), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"},
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": os.pathsep.join(paths),
        },
    )
    try:
        while half_way is not None and not half_way():
            if child.poll() is not None:
                pytest.fail(f"It ended early: {child.communicate()[1][-3000:]}")
            time.sleep(0.02)
        if half_way is not None:
            os.kill(_executors(child.pid)[0].pid, signal.SIGKILL)
        out, err = child.communicate(timeout=900)
        assert child.returncode == 0, err[-3000:]
        return out.strip().splitlines()[-1]
    finally:
        for process in (
            [*psutil.Process(child.pid).children(recursive=True)] if child.poll() is None else []
        ):
            process.kill()
        child.kill()


def _executors(parent: int) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(parent).children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                found.append(process)
    assert len(found) == EXECUTORS
    return found
