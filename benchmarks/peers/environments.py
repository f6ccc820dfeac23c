"""The sides and the environments that they run in, made by pip where they are missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.harness import Say

OURS, AS_JSON, LOTUS, DAFT = "relquery", "relquery, JSON", "LOTUS", "Daft"
"""OURS sends prompts in the compact form, text, the default; AS_JSON in the paper's."""
DEFAULT = Path(".venv-peers")
PROGRAMS = "benchmarks.peers.programs"
_MADE = "installed"
"""A file in an environment that has all its packages."""


@dataclass(frozen=True, slots=True)
class Side:
    """program: its module, see benchmarks.peers.programs.job. settings: environment variables.

    form: of our prompts.
    """

    name: str
    program: str
    python: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    form: Literal["json", "text"] = "text"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another system. program: in PROGRAMS. packages: in the order of their installation."""

    name: str
    program: str
    packages: tuple[str, ...]
    settings: Mapping[str, str]


PEERS = (
    # Its import needs torch, of which another build would be gigabytes larger.
    Peer(
        LOTUS,
        "lotus",
        ("torch==2.13.*", "lotus-ai==1.2.4"),
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": "none"},
    ),
    Peer(
        DAFT,
        "daft",
        ("daft[openai]==0.7.26",),
        {"DAFT_ANALYTICS_ENABLED": "0", "DO_NOT_TRACK": "1", "DAFT_PROGRESS_BAR": "0"},
    ),
)


def sides(folder: Path, say: Say) -> list[Side]:
    """relquery in this environment, in both forms, and each peer in one of its own in a folder."""
    program, python = f"{PROGRAMS}.ours", Path(sys.executable)
    ours = [Side(OURS, program, python), Side(AS_JSON, program, python, form="json")]
    theirs = []
    for peer in PEERS:
        python = environment(folder / peer.program, peer.name, peer.packages, say)
        theirs.append(Side(peer.name, f"{PROGRAMS}.{peer.program}", python, peer.settings))
    return [*ours, *theirs]


def environment(folder: Path, name: str, packages: Sequence[str], say: Say) -> Path:
    """The Python of an environment with packages, in the order of their installation; it is made
    where it is missing. name: of what runs in it."""
    python = folder.absolute() / "bin" / "python"
    if not (folder / _MADE).exists():
        say(f"making an environment for {name} in {folder}; this takes some minutes")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        for package in packages:
            command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            subprocess.run([*command, package], check=True)
        (folder / _MADE).write_text("\n".join(packages), encoding="utf-8")
    return python
