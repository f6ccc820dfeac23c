"""Servers in processes of their own."""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from relquery.serve.settings import ServeConfig

pytest.importorskip("torch", reason="needs relquery[local]")
pytest.importorskip("fastapi", reason="needs relquery[serve]")

STARTING = 300.0  # seconds that a server has to take requests: the first in a tree compiles

_MAIN = """
import pickle, sys
from relquery.serve.run import serve

if __name__ == "__main__":
    config = pickle.loads(bytes.fromhex(sys.argv[1]))
    serve(config, lambda server, port: print(port, flush=True))
"""


SCHEMA = """
<schema name="travel">
  <system>You plan travels. Answer in one sentence.</system>
  <user>
    <module name="plan">
      I want to travel for <param name="duration" len="4"/>.
      <union>
        <module name="home">I stay in my country and like lakes, forests and long walks.</module>
        <module name="abroad">I go to a city on another continent and like museums.</module>
      </union>
    </module>
  </user>
</schema>
"""


@dataclass
class Running:
    """A server process, and where it listens. lines: of its log so far."""

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


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def started(model: str = "demo", **settings: Any) -> Iterator[Running]:
    """A server until the end of the block. settings: of ServeConfig."""
    config = ServeConfig(
        model, **{"port": 0, "grace": 2.0, "log": "json", "log_level": "info", **settings}
    )
    command = [sys.executable, "-c", _MAIN, pickle.dumps(config).hex()]
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of tables, a schema, and a file that nobody may read."""
    folder = tmp_path_factory.mktemp("serve")
    (folder / "notes.csv").write_text("id,note\n1,A boat.\n2,A lake.\n3,A boat.\n")
    (folder / "secret.csv").write_text("word\nhidden\n")
    (folder / "schemas").mkdir()
    (folder / "schemas" / "travel.xml").write_text(SCHEMA)
    with duckdb.connect(str(folder / "shop.duckdb")) as shop:
        shop.execute("CREATE TABLE orders AS SELECT 1 AS id, 2.50::DECIMAL(5,2) AS price")
    return folder


@pytest.fixture(scope="session")
def server(folder: Path) -> Iterator[Running]:
    """A server of the demo model with tables and a schema, which serves everybody."""
    tables = {
        "movies": "demo:movies",
        "notes": str(folder / "notes.csv"),
        "shop": str(folder / "shop.duckdb"),
    }
    with started(tables=tables, schemas=folder / "schemas") as found:
        yield found
