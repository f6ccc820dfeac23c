"""What a program is given and what it prints: `python -m benchmarks.peers.programs.NAME JSON`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

CONCURRENCY = 16
"""Requests under way at once, on every side."""
RETRIES = 5

Rows = dict[str, Any]
"""Values by row: by its id, or by the title of its group. A row without a value is left out."""


@dataclass(frozen=True, slots=True)
class Job:
    """kind: what is asked, a key of ASKING. url: of the server. table: the folder of the rows.

    store: a folder that outlives the process, for what a side keeps of its work; None for none.
    form: of the prompts, where a side has several.
    """

    kind: str
    url: str
    model: str
    table: str
    store: str | None = None
    form: Literal["json", "text"] = "text"


def main(asking: Mapping[str, Callable[[Job], Rows]]) -> None:
    """Do what the command line says, and print it.

    Seconds and those of the processor (with children) begin after the imports; `process` is the
    processor's from the start of the program.
    """
    job = Job(**json.loads(sys.argv[1]))
    began, cpu, error = perf_counter(), _cpu(), None
    rows: Rows = {}
    try:
        rows = asking[job.kind](job)
    except Exception as raised:  # what a user of this side would see
        error = f"{type(raised).__name__}: {raised}"[:300]
    spent = {"seconds": perf_counter() - began, "cpu": _cpu() - cpu, "process": _cpu()}
    print("\n" + json.dumps({"rows": rows, "error": error, **spent}), flush=True)


def _cpu() -> float:
    return sum(os.times()[:4])
