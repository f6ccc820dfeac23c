"""The text of a benchmark's document: blocks of a Markdown file, each below its name.

<!-- introduction -->
The text above all sections. {count} is filled in.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

_NAME = re.compile(r"^<!-- (\S+) -->\n", re.MULTILINE)


class Template:
    """The file `document.md` of a benchmark."""

    def __init__(self, benchmark: str) -> None:
        text = (Path(__file__).parent / benchmark / "document.md").read_text(encoding="utf-8")
        _, *parts = _NAME.split(text)
        self._blocks = dict(zip(parts[::2], parts[1::2], strict=True))

    def block(self, name: str, **values: Any) -> str:
        """A block with its {fields} filled in. Raises KeyError for an unknown block or field."""
        return self._blocks[name].strip("\n").format(**values) + "\n"


@cache
def template(benchmark: str) -> Template:
    """The template of a benchmark, by the name of its folder."""
    return Template(benchmark)
