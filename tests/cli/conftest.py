"""The command line, run in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from relquery.cli import main

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def relquery(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs `relquery` with arguments; gives standard output and error, 120 characters wide."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: str, code: int = 0, stdin: str = "") -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["relquery", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = (stream.decode() for stream in capfdbinary.readouterr())
        assert (ended.value.code or 0) == code, out + err
        return out, err

    return run
