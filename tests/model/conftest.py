"""Fixtures of the model tests. One thread: the networks are tiny, and results then repeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data import data_path

torch = pytest.importorskip("torch", reason="needs relquery[local]")
pytest.importorskip("transformers", reason="needs relquery[local]")
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def stories() -> Path:
    """Folder of the 260K-parameter stories model."""
    return data_path("stories260K")
