"""Cases of a test as data beside it, a case a line. Lines that begin with # say why they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def cases(test_file: str, name: str = "") -> list[Any]:
    """JSON values of the file `*.cases`; with a name, those below its heading `## name`."""
    text = Path(test_file).with_suffix(".cases").read_text(encoding="utf-8")
    if name:
        text = text.partition(f"## {name}\n")[2].partition("\n## ")[0]
    found = [json.loads(line) for line in _lines(text)]
    assert found, f"no cases of {name}"
    return found


def case_file(test_file: str, name: str) -> list[tuple[str, ...]]:
    """The fields of each case of a file, parted by ` ~ `; `\\n` is a new line."""
    return [
        tuple(field.replace("\\n", "\n") for field in line.split(" ~ "))
        for line in _lines((Path(test_file).parent / name).read_text(encoding="utf-8"))
    ]


def values(test_file: str, name: str, **known: Any) -> list[Any]:
    """The fields of each case of a file, parted by ` ~ ` and written as Python writes values.

    A line with one field is that value. known: names in fields.
    """
    lines = _lines((Path(test_file).parent / name).read_text(encoding="utf-8"))
    found = [tuple(eval(field, dict(known)) for field in line.split(" ~ ")) for line in lines]
    assert found, f"no cases in {name}"
    return [case if len(case) > 1 else case[0] for case in found]


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]
