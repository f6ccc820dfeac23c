"""`relquery serve` and `relquery keys`, as commands."""

from __future__ import annotations

import logging
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from relquery.cli import keys
from relquery.cli.app import app
from relquery.errors import ConfigError
from relquery.serve.auth import hash_of, read_keys, write_keys
from relquery.serve.logs import QUIET
from tests.cases import cases


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """The command sets up the log of its process, which here is that of the tests."""
    named = [logging.getLogger(name) for name in (None, *QUIET)]
    before = [(each, each.level, each.handlers[:]) for each in named]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


def run(*words: object) -> str:
    found = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def test_a_key_is_made_shown_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    secret = run("keys", "add", "ann", "--tenant", "t", "--weight", "2", "--file", path).strip()
    assert hash_of(secret) == read_keys(path)[0].hash
    listed = run("keys", "list", "--file", path)
    assert "ann" in listed
    assert secret not in listed
    with pytest.raises(ConfigError, match="has a key 'ann'"):
        run("keys", "add", "ann", "--file", path)
    with pytest.raises(ConfigError, match="must be a date"):
        run("keys", "add", "bob", "--expires", "soon", "--file", path)
    with pytest.raises(ConfigError, match="Did you mean 'ann'"):
        run("keys", "remove", "anne", "--file", path)
    run("keys", "remove", "ann", "--file", path)
    assert read_keys(path) == ()


def test_keys_added_at_once_are_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is held before it is written, until the other has had time to read."""
    path, names = tmp_path / "keys.json", ("k0", "k1")

    def later(*given: Any) -> None:
        time.sleep(0.2)
        write_keys(*given)

    monkeypatch.setattr(keys, "write_keys", later)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda name: keys.add(name, path), names)) == [None, None]
    assert sorted(key.name for key in read_keys(path)) == list(names)


def test_a_port_that_is_taken_is_told_before_a_model_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port} of 127.0.0.1 is taken.*--port"):
            run("serve", "--port", str(port))


@pytest.mark.parametrize(("words", "said"), cases(__file__))
def test_wrong_settings_are_told(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        run("serve", *words)


@contextmanager
def served(model: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process of the command, and where it says that it serves."""
    words = ("serve", "--model", model, "--port", "0", "--served-model-name", "m")
    command = [sys.executable, "-m", "relquery", *words]
    piped = subprocess.PIPE
    with subprocess.Popen(command, stdout=piped, stderr=piped, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"Serving m at (http://127.0.0.1:\d+) \(policy shortest", line)
            assert found is not None, line
            yield process, found[1]
        finally:
            process.kill()


def test_the_command_says_where_it_serves_and_ends_with_0() -> None:
    with served("simulated:step=0.01") as (process, url):
        assert httpx.get(f"{url}/health").json() == {"status": "ok", "model": "m"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.long
def test_a_second_ctrl_c_ends_it_at_once_without_a_traceback() -> None:
    """The request that runs would take twenty seconds, for which the first one waits."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    with served("simulated:step=0.05,length=400") as (process, url):
        asked = httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60)
        with asked as answer:
            lines = answer.iter_lines()  # kept: without it the stream is closed
            assert next(lines).startswith("data:")
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            assert any("stopping" in line for line in iter(process.stderr.readline, ""))
            process.send_signal(signal.SIGINT)
            left = process.stderr.read()
        assert process.wait(15) == 130
    assert "Traceback" not in left
    assert left.splitlines()[-1] == "Interrupted."
