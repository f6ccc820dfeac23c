"""Servers that pages start, and what pages ask them from a terminal."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.serve.conftest import free_port

PORT = "8000"
"""Which pages name; the servers of tests listen on others."""
_LAST_LINE = "Ctrl-C stops it."
_MADE = re.compile(r"\b[0-9a-f]{24}\b|\b1\d{9}\b|\d+\.\d+(?:e-\d+)?|\bfile-\w+|\b0\b(?!\.)")
"""Ids, times, and what is measured."""


class Server(NamedTuple):
    """A running server. said: what it has printed."""

    port: str
    said: str

    def here(self, text: str) -> str:
        """A page's text with the server's own address."""
        return text.replace(f"127.0.0.1:{PORT}", f"127.0.0.1:{self.port}")

    def on_page(self, text: str) -> str:
        """The opposite of `here`."""
        return text.replace(f"127.0.0.1:{self.port}", f"127.0.0.1:{PORT}")


@contextmanager
def server(command: str) -> Iterator[Server]:
    """What `relquery serve ...` starts, on a free port, until the end of the block."""
    port = str(free_port())
    words = [sys.executable, "-m", *shlex.split(command), "--port", port, "--log-level", "error"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = ""
            while _LAST_LINE not in said:
                line = process.stdout.readline()
                assert line, f"the server has not started: {command}"
                said += line
            yield Server(port, said)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    assert process.returncode == 0


def in_shell(command: str) -> str:
    """What a command prints. `python` is the one that runs the tests."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words, env = ("bash", "-c", command), {**os.environ, "PATH": path}
    ran = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def has_programs(command: str) -> bool:
    """Whether this machine has what a command runs."""
    return not command.startswith("curl ") or shutil.which("curl") is not None


def letters(text: str) -> str:
    """A text without white space, and without what differs from run to run."""
    return "".join(_MADE.sub("0", text).split())
