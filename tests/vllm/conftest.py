"""`import vllm` gives the stand-in here, since vLLM itself is not installed in CI."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.vllm import fake

with pytest.MonkeyPatch.context() as patch:  # so that tests can import the plug-in as usual
    fake.install(patch)
    import relquery.vllm.scheduler
    import relquery.vllm.spans.connector  # noqa: F401


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        fake.install(patch)
        yield
