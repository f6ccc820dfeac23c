"""A stand-in for vLLM with the pinned signatures, since vLLM itself is not installed in CI."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_OURS = ("relquery.vllm.scheduler", "relquery.vllm.spans.connector", "relquery.vllm.spans.requests")
STUBS = Path(__file__).parent / "stubs"


@pytest.fixture(scope="module")
def stubs() -> Iterator[None]:
    """`import vllm` gives the stand-in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STUBS))
        _forget()
        yield
        _forget()


def _forget() -> None:
    for name in [*sys.modules]:
        if name == "vllm" or name.startswith("vllm.") or name in _OURS:
            del sys.modules[name]
