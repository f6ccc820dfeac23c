"""Fixtures of the model tests. One thread: the networks are tiny, and results then repeat."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs relquery[local]")
pytest.importorskip("transformers", reason="needs relquery[local]")
torch.set_num_threads(1)

DATA = Path(os.environ.get("RELQUERY_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.fixture(scope="session")
def stories() -> Path:
    """Folder of the 260K-parameter stories model."""
    folder = DATA / "stories260K"
    if not (folder / "model.safetensors").exists():
        pytest.skip(f"no stories260K model at {folder}; set RELQUERY_DATA to the data folder")
    return folder
