"""Whatever statements a tenant sends, the server and other tenants go on."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from relquery.serve.auth import Key, hash_of, write_keys
from tests.serve.conftest import Process, started
from tests.serve.sql_workers.hostile import statements

MIB = 1 << 20
MEMORY, SECONDS = 300, 2.5
KEYS = [Key(name, name, hash_of(f"rq-{name}"), f"rq-{name}"[:6]) for name in ("bad", "good")]
FEW = (
    "SELECT bitstring('0', 2000000000)",
    "SELECT replace(repeat('a', 1000000), 'a', repeat('b', 10000))",
    "SELECT repeat(repeat('x', 10000), 100000)",
    "SELECT * FROM range(100000000)",
    "SELECT sum(a.range * b.range % 7) FROM range(1000000) a, range(1000000) b",
    "SELECT " + "[" * 5_000 + "1" + "]" * 5_000,
    "SELECT LLM('Write.', range) FROM range(100000)",
    "WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM t) SELECT count(*) FROM t",
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    write_keys(path, KEYS)
    limits = {"sql_memory": f"{MEMORY}MiB", "sql_seconds": SECONDS}
    tables = {"movies": "demo:movies"}
    model = "simulated:step=0.0005,length=4,context=4096"
    with started(model, names=("demo",), keys=path, tables=tables, **limits) as found:
        yield found


def client_of(server: Process, tenant: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer rq-{tenant}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=120)


class Watched:
    """A server under attack: what its processes take, and how long another tenant waits."""

    def __init__(self, server: Process) -> None:
        self.server, self.over = server, threading.Event()
        self.process = psutil.Process(server.process.pid)
        self.waits: list[float] = []
        self.most_of_worker = self.most_of_server = 0
        self.told: Counter[int] = Counter()

    def attack(self, queries: Sequence[str]) -> None:
        """Send all statements, eight at once."""
        left, lock = iter(queries), threading.Lock()
        watching = [threading.Thread(target=each) for each in (self._wait, self._weigh)]
        attacking = [threading.Thread(target=self._send, args=(left, lock)) for _ in range(8)]
        for each in (*watching, *attacking):
            each.start()
        for each in attacking:
            each.join()
        self.over.set()
        for each in watching:
            each.join()

    def _send(self, queries: Iterator[str], lock: Any) -> None:
        with client_of(self.server, "bad") as client:
            while True:
                with lock:
                    query = next(queries, None)
                if query is None:
                    return
                with client.stream("POST", "/v1/sql", json={"query": query}) as answer:
                    for _ in answer.iter_bytes():
                        pass
                self.told[answer.status_code] += 1

    def _wait(self) -> None:
        with client_of(self.server, "good") as client:
            while not self.over.is_set():
                began = time.monotonic()
                answer = client.post("/v1/sql", json={"query": "SELECT 42"})
                self.waits.append(time.monotonic() - began)
                if answer.status_code != 200 or answer.json()["rows"] != [[42]]:
                    self.waits.append(float("inf"))
                time.sleep(0.1)

    def _weigh(self) -> None:
        while not self.over.is_set():
            self.most_of_server = max(self.most_of_server, self.process.memory_info().rss)
            for each in workers_of(self.process):
                self.most_of_worker = max(self.most_of_worker, private(each))
            time.sleep(0.05)


def workers_of(server: psutil.Process) -> list[psutil.Process]:
    return [worker for child in server.children() for worker in child.children()]


def private(process: psutil.Process) -> int:
    """Bytes that no other process shares."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_D"))


@pytest.mark.parametrize(
    "queries",
    [
        pytest.param(FEW, id="few"),
        pytest.param(list(statements(1_000, seed=58)), id="many", marks=pytest.mark.long),
    ],
)
def test_statements_that_take_too_much_touch_nothing_else(
    guarded: Process, queries: Sequence[str]
) -> None:
    with client_of(guarded, "good") as client:
        for _ in range(3):  # what is loaded once
            began = time.monotonic()
            assert client.post("/v1/sql", json={"query": "SELECT 42"}).status_code == 200
            idle = time.monotonic() - began
    found = Watched(guarded)
    before, files = found.process.memory_info().rss, found.process.num_fds()
    found.attack(queries)
    assert sum(found.told.values()) == len(queries)
    assert set(found.told) <= {200, 400, 403, 504}, found.told
    assert found.most_of_worker < (MEMORY + 100) * MIB
    assert found.most_of_server < before + 40 * MIB
    waits = sorted(found.waits)
    assert waits[len(waits) // 2] < max(1, 5 * idle), waits
    assert waits[-1] < 60, waits
    assert len(found.waits) > 5
    time.sleep(0.5)
    assert found.process.num_fds() <= files + 8
    assert all(each.status() != psutil.STATUS_ZOMBIE for each in workers_of(found.process))
    assert not any("Traceback" in line for line in guarded.lines)


def test_what_needs_more_memory_is_refused_with_a_remedy(guarded: Process) -> None:
    with client_of(guarded, "bad") as client:
        for size, status in ((1, 200), (2 * MEMORY, 400)):  # beyond what DuckDB itself counts
            query = f"SELECT len(repeat('x', {size * MIB}) || 'y')"
            answer = client.post("/v1/sql", json={"query": query})
            assert answer.status_code == status, answer.text
        error = answer.json()["error"]
    assert error["code"] == "memory_exceeded"
    assert "--sql-memory" in error["message"]


def test_tenants_are_not_given_answers_of_each_other(guarded: Process) -> None:
    hits = []
    for tenant in ("bad", "bad", "good"):
        with client_of(guarded, tenant) as client:
            body = {"query": "SELECT LLM('Mine?', 7)", "on_error": "null"}
            report = client.post("/v1/sql", json=body).json()["report"]
            hits.append((report["calls"], report["ledger_hits"]))
    assert hits == [(1, 0), (0, 1), (1, 0)]


def test_no_process_and_no_file_is_left_of_a_server(tmp_path: Path) -> None:
    os.environ["TMPDIR"], before = str(tmp_path), os.environ.get("TMPDIR")
    try:
        with started(
            "simulated:step=0.0005", names=("demo",), tables={"m": "demo:movies"}
        ) as server:
            slow = {"query": "SELECT sum(a.range % 7) FROM range(1000000) a, range(1000000)"}
            with pytest.raises(httpx.TimeoutException):
                httpx.post(f"{server.url}/v1/sql", json=slow, timeout=0.5)
            children = psutil.Process(server.process.pid).children(recursive=True)
            assert any(tmp_path.iterdir())
    finally:
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert (len(gone) > 3, alive, list(tmp_path.iterdir())) == (True, [], [])


def test_the_process_that_makes_workers_is_started_again(guarded: Process) -> None:
    server = psutil.Process(guarded.process.pid)
    with client_of(guarded, "good") as client:
        (zygote,) = [each for each in server.children() if each.children()]
        zygote.kill()
        until, right = time.monotonic() + 60, 0
        while right < 6:  # the first may wait for longer than a statement may take
            assert time.monotonic() < until
            answer = client.post("/v1/sql", json={"query": "SELECT count(*) FROM movies"})
            right += answer.status_code == 200 and answer.json()["rows"] == [[1536]]
