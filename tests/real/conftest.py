"""Real models: folders that `scripts/real-models` fetches, and engines on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.real.golden import model_folder

Folders = Callable[[str], Path]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.real)


def needed(name: str) -> Path:
    """A model's folder; the test that asks for an absent one is skipped."""
    folder = model_folder(name)
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent: scripts/real-models {name}")
    return folder


@contextmanager
def two_threads() -> Iterator[None]:
    """Real networks get both cores; other tests run one beside another, with a thread each."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="module")
def _threads() -> Iterator[None]:
    with two_threads():
        yield
