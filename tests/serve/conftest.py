"""A server in a process of its own, with the demo model."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs relquery[local]")
pytest.importorskip("fastapi", reason="needs relquery[serve]")

_MAIN = """
import sys
from pathlib import Path
from relquery.serve.run import serve
from relquery.serve.settings import ServeConfig

serve(ServeConfig("demo", **eval(sys.argv[1])))
"""
STARTING = 240.0  # seconds that a server has to take requests


@dataclass(frozen=True)
class Started:
    """Where a server listens."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def started(**config: Any) -> Iterator[Started]:
    """A server with further settings of ServeConfig, until the end of the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = repr({"port": port, "grace": 2.0, **config}).replace("PosixPath", "Path")
    with subprocess.Popen([sys.executable, "-c", _MAIN, settings]) as process:
        try:
            _wait(process, port)
            yield Started(port)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + STARTING
    while process.poll() is None and time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("the server does not start")


@pytest.fixture(scope="session")
def server() -> Iterator[Started]:
    """The demo model behind a server."""
    with started() as found:
        yield found
