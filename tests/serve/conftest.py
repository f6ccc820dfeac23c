"""One server process for all tests."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

PROGRAM = """
import sys
from pathlib import Path
from relquery.serve.run import serve
from relquery.serve.settings import ServeConfig
port, state = sys.argv[1:]
serve(ServeConfig("demo", port=int(port), state=Path(state) if state else None))
"""


@dataclass(frozen=True)
class Running:
    """A server process."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Of its root."""
        return f"http://127.0.0.1:{self.port}"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def running(state: str = "") -> Iterator[Running]:
    """A server of the demo model, stopped at the end."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(port), state])
    try:
        server = Running(port, process)
        _await(server)
        yield server
    finally:
        process.terminate()
        process.wait(30)


def _await(server: Running) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        assert server.process.poll() is None, "the server has ended"
        try:
            with urllib.request.urlopen(f"{server.url}/v1/models", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    pytest.fail("the server does not answer")


@pytest.fixture(scope="session")
def server() -> Iterator[Running]:
    """A server of the demo model."""
    with running() as found:
        yield found
