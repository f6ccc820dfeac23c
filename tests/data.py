"""Where the real tables and weights lie that the repository does not hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).parents[2] / "shared" / "data"
DATA = Path(os.environ.get("RELQUERY_DATA", _BESIDE))


def data_path(name: str) -> Path:
    """A file or folder of the data; the test that asks for an absent one is skipped."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is absent; set RELQUERY_DATA to the benchmark data folder")
    return path
