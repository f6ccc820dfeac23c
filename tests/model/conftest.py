"""Fixtures of the model tests. One thread: the networks are tiny, and results then repeat."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs relquery[torch]")
pytest.importorskip("transformers", reason="needs relquery[torch]")
torch.set_num_threads(1)
