"""A process that is killed has lost no answer that came a tenth of a second before."""

from __future__ import annotations

import random
import re
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import pytest

from tests.backends.provider.chat_server import Body, Reply, completion, question, serving, until
from tests.ledger.asking import ROWS, START, ask

pytestmark = pytest.mark.long
KILLS, MOMENT, AT_ONCE = 10, 0.1, 4


@dataclass
class Server:
    """Answers with the number of the row. came: when each request did, and about which row.

    A client with AT_ONCE requests at a time has taken an answer, at the latest, when it has sent
    AT_ONCE more requests.
    """

    came: list[tuple[float, int]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def reply(self, body: Body) -> Reply:
        found = re.search(r"\d+", question(body))
        assert found is not None
        with self.lock:
            self.came.append((time.monotonic(), int(found[0])))
        time.sleep(0.002)
        return completion(f"row {found[0]}")


def stored_rows(path: Path) -> list[int]:
    """The rows whose answers are in the file, as another process reads it."""
    with closing(sqlite3.connect(path)) as file:
        return [int(text.split()[1]) for (text,) in file.execute("SELECT text FROM answers")]


def test_ten_kills_lose_no_answer_that_came_a_moment_before(tmp_path: Path) -> None:
    path, server, rng = tmp_path / "answers.db", Server(), random.Random(0)
    kept: set[int] = set()
    with serving(server.reply) as chat:
        for _ in range(KILLS):
            before, more = len(server.came), rng.randint(AT_ONCE + 1, 30)
            process = START.Process(target=ask, args=(path, chat.url, AT_ONCE))
            process.start()
            until(lambda at=before + more: len(server.came) >= at)
            time.sleep(rng.random() * 0.1)
            end = time.monotonic()
            process.kill()
            process.join()
            came, found = server.came[before:], stored_rows(path)
            taken = [row for at, row in came if at < end - MOMENT][: -AT_ONCE or None]
            assert set(taken) <= set(found)
            assert not {row for _, row in came} & kept, "a stored answer was asked again"
            kept = set(found)
            assert len(found) == len(kept)
        last = START.Process(target=ask, args=(path, chat.url, AT_ONCE))
        last.start()
        last.join(60)
        assert last.exitcode == 0
    assert sorted(stored_rows(path)) == list(range(ROWS))
