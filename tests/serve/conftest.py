"""Servers: in this process, and in processes of their own."""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import duckdb
import httpx
import openai
import pytest

from relquery.errors import OrderWarning, PartialResultWarning, PromptWarning
from relquery.serve.settings import ServeConfig

pytest.importorskip("fastapi", reason="needs relquery[serve]")

from tests.serve.inside import STARTING, in_threads

_MAIN = """
import pickle, sys
from relquery.serve.run import serve

if __name__ == "__main__":
    config = pickle.loads(bytes.fromhex(sys.argv[1]))
    serve(config, lambda server, port: print(port, flush=True))
"""

USUAL = {"port": 0, "grace": 2.0, "log": "json", "log_level": "info"}
SCHEMA = (Path(__file__).parent / "travel.xml").read_text(encoding="utf-8")


@dataclass
class Running:
    """A server, and where it listens. lines: of its log so far."""

    port: int = 0
    lines: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [each for each in found if each["message"] == "request"]


class Process(Running):
    """A server in a process of its own."""

    process: subprocess.Popen[str]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def inside(model: str = "demo", **settings: Any) -> Iterator[Running]:
    """A server in threads of this process until the end of the block. settings: of ServeConfig."""
    found = Running()
    with in_threads(ServeConfig(model, **{**USUAL, **settings}), found.lines) as found.port:
        yield found


@contextmanager
def started(model: str = "demo", **settings: Any) -> Iterator[Process]:
    """The same in a process of its own."""
    config = ServeConfig(model, **{**USUAL, **settings})
    command = [sys.executable, "-c", _MAIN, pickle.dumps(config).hex()]
    found, piped = Process(), subprocess.PIPE
    with subprocess.Popen(command, stdout=piped, stderr=piped, text=True) as found.process:
        reader = threading.Thread(target=_read, args=(found,), daemon=True)
        reader.start()
        try:
            _wait(found)
            yield found
        finally:
            found.process.terminate()
            try:
                found.process.wait(40)
            except subprocess.TimeoutExpired:
                found.process.kill()
            reader.join()


def _read(found: Process) -> None:
    assert found.process.stderr is not None
    for line in found.process.stderr:
        found.lines.append(line)


def _wait(found: Process) -> None:
    assert found.process.stdout is not None
    line = found.process.stdout.readline()
    assert line.strip().isdigit(), f"the server has not started: {found.lines}"
    found.port = int(line)
    until = time.monotonic() + STARTING
    while httpx.get(f"{found.url}/health").status_code != 200:
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.fixture(autouse=True)
def _only_answers_warn() -> None:
    """As a server's process has it: those who ask are told in their answers."""
    for kind in (PartialResultWarning, OrderWarning, PromptWarning):
        warnings.simplefilter("ignore", kind)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve")
    (folder / "notes.csv").write_text("id,note\n1,A boat.\n2,A lake.\n3,A boat.\n")
    (folder / "secret.csv").write_text("word\nhidden\n")
    with duckdb.connect(str(folder / "shop.duckdb")) as shop:
        shop.execute("CREATE TABLE orders AS SELECT 1 AS id, 2.50::DECIMAL(5,2) AS price")
    return folder


@pytest.fixture(scope="session")
def server(folder: Path) -> Iterator[Running]:
    """A server of the demo model with tables, which serves everybody."""
    tables = {
        "movies": "demo:movies",
        "notes": str(folder / "notes.csv"),
        "shop": str(folder / "shop.duckdb"),
    }
    with inside(tables=tables) as found:
        yield found


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    """OpenAI's own client, of the server that all tests share or of the module's own one."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as found:
        yield found


@pytest.fixture(scope="module")
def theirs(server: Running) -> Iterator[anthropic.Anthropic]:
    """Anthropic's own client."""
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as found:
        yield found
