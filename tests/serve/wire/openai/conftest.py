"""OpenAI's own client, of the server that all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.serve.conftest import Running


@pytest.fixture(scope="session")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as found:
        yield found
