"""Servers in processes of their own."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from relquery.serve.settings import ServeConfig

pytest.importorskip("torch", reason="needs relquery[local]")
pytest.importorskip("fastapi", reason="needs relquery[serve]")

_MAIN = """
import pickle, sys
from relquery.serve.run import serve

serve(pickle.loads(bytes.fromhex(sys.argv[1])))
"""
STARTING = 240.0  # seconds that a server has to take requests: the first in a tree compiles


@dataclass(frozen=True)
class Running:
    """A server process, and where it listens."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def started(model: str = "demo", **config: Any) -> Iterator[Running]:
    """A server until the end of the block. config: fields of ServeConfig."""
    port = free_port()
    settings = ServeConfig(model, **{"port": port, "grace": 2.0, **config})
    with subprocess.Popen([sys.executable, "-c", _MAIN, pickle.dumps(settings).hex()]) as process:
        try:
            _wait(process, port)
            yield Running(port, process)
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
def server() -> Iterator[Running]:
    """A server of the demo model."""
    with started() as found:
        yield found
