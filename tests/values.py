"""Cases as data beside a test, whose fields are written as Python writes values."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def values(test_file: str, name: str, **known: Any) -> list[Any]:
    """The cases of a file beside a test, a line each: tuples of the fields that ` ~ ` parts.

    A line with one field is that value. Lines that begin with # say why. known: names in fields.
    """
    lines = (Path(test_file).parent / name).read_text(encoding="utf-8").splitlines()
    found = [
        tuple(eval(field, dict(known)) for field in line.split(" ~ "))
        for line in lines
        if line and not line.startswith("#")
    ]
    assert found, f"no cases in {name}"
    return [case if len(case) > 1 else case[0] for case in found]
