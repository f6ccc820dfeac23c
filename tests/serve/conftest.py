"""Server processes with the demo model."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

pytest.importorskip("torch", reason="needs relquery[local]")
pytest.importorskip("fastapi", reason="needs relquery[serve]")

STARTING = 300.0  # seconds that a server has to take requests

MAIN = """
import json, sys
from pathlib import Path
from relquery.serve.run import serve
from relquery.serve.settings import ServeConfig

if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    for name in ("keys", "state", "schemas"):
        if given.get(name):
            given[name] = Path(given[name])
    settings = {"model": "demo", "port": 0, "log": "json", "log_level": "info", **given}
    serve(ServeConfig(**settings), lambda server, port: print(port, flush=True))
"""


@dataclass
class Running:
    """A server process. lines: of its log so far."""

    process: subprocess.Popen[str]
    port: int = 0
    lines: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Of its root."""
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> list[dict[str, Any]]:
        """The lines of its log that are about requests."""
        found = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [each for each in found if each["message"] == "request"]


@contextmanager
def running(**settings: Any) -> Iterator[Running]:
    """A server with further settings of ServeConfig, until the end of the block."""
    command = [sys.executable, "-c", MAIN, json.dumps(settings)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        found = Running(process)
        reader = threading.Thread(target=_read, args=(found,), daemon=True)
        reader.start()
        try:
            _wait(found)
            yield found
        finally:
            process.terminate()
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
            reader.join()


def _read(found: Running) -> None:
    assert found.process.stderr is not None
    for line in found.process.stderr:
        found.lines.append(line)


def _wait(found: Running) -> None:
    assert found.process.stdout is not None
    line = found.process.stdout.readline()
    assert line.strip().isdigit(), f"the server has not started: {found.lines}"
    found.port = int(line)
    until = time.monotonic() + STARTING
    while httpx.get(f"{found.url}/health").status_code != 200:
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.fixture(scope="session")
def server() -> Iterator[Running]:
    """A server of the demo model that serves everybody."""
    with running() as found:
        yield found
