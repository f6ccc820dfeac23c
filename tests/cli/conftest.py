"""The command line, run in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import cache

import pytest
import typer

from relquery.cli import main

Run = Callable[..., tuple[str, str]]
once = cache(typer.main.get_command)  # which takes longer than most commands


@pytest.fixture
def relquery(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs `relquery` with arguments; gives standard output and error, 120 characters wide."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(typer.main, "get_command", once)

    def run(*arguments: object, code: int = 0, stdin: str | bytes = "") -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["relquery", *map(str, arguments)])
        content = stdin.encode() if isinstance(stdin, str) else stdin
        encoding = "utf-8" if isinstance(stdin, str) else "latin-1"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = (stream.decode() for stream in capfdbinary.readouterr())
        assert (ended.value.code or 0) == code, out + err
        return out, err

    return run
