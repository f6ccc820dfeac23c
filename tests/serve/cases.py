"""Cases of a test as data: a file beside it, with a JSON list a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def cases(test_file: str, name: str = "") -> list[Any]:
    """The cases of a file, or those below a heading. Lines that begin with # say why they are."""
    text = Path(test_file).with_suffix(".cases").read_text(encoding="utf-8")
    if name:
        text = text.partition(f"## {name}\n")[2].partition("\n## ")[0]
    found = [json.loads(line) for line in text.splitlines() if not line.startswith("#")]
    assert found, f"no cases of {name}"
    return found
