"""A server as its users start it, and what its processes take."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil

PATIENCE = 180.0
"""Seconds until a server must take requests."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server's processes. url: without a path."""

    url: str
    front: psutil.Process

    @property
    def processes(self) -> list[psutil.Process]:
        """The front and the engine's process."""
        return [self.front, *self.front.children(recursive=True)]

    def cpu(self) -> tuple[float, float]:
        """Processor seconds of the front, and of all other processes, so far."""
        own, *others = [_cpu(process) for process in self.processes]
        return own, sum(others)

    def memory(self) -> int:
        """Resident bytes of all processes."""
        return sum(process.memory_info().rss for process in self.processes)

    def handles(self) -> int:
        """Open file handles of the front."""
        return int(self.front.num_fds())

    def get(self, path: str) -> Any:
        """What a path gives: JSON, or text."""
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            content = answer.read().decode()
            kind = answer.headers.get_content_type()
        return json.loads(content) if kind == "application/json" else content


@contextmanager
def running(model: str, *options: str) -> Iterator[Running]:
    """A server in processes of its own. options: of `relquery serve`."""
    port = _free_port()
    command = [sys.executable, "-m", "relquery", "serve", "--model", model]
    command += ["--port", str(port), "--log-level", "warning", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        server = Running(f"http://127.0.0.1:{port}", psutil.Process(process.pid))
        _await_ready(server, process)
        yield server
    finally:
        process.terminate()
        process.wait(60)


def run_client(module: str, *arguments: str) -> Any:
    """Run a client of benchmarks.serve.clients to its end; returns the JSON that it prints."""
    command = [sys.executable, "-m", f"benchmarks.serve.clients.{module}", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _await_ready(server: Running, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            server.get("/health/ready")
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("The server did not start.") from None
            time.sleep(0.2)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
