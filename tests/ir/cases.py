"""Cases as data beside a test: a file of what goes in and what comes out, a case a line."""

from __future__ import annotations

from pathlib import Path


def cases(file: Path) -> list[tuple[str, ...]]:
    """The fields of each case, parted by ` ~ `; `\\n` is a new line, and `#` begins a comment."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [
        tuple(field.replace("\\n", "\n") for field in line.split(" ~ "))
        for line in lines
        if line and not line.startswith("#")
    ]


def case_file(test: str, name: str) -> list[tuple[str, ...]]:
    """Those of a file that lies beside a test. test: the file of the test."""
    return cases(Path(test).parent / name)
