"""An embeddings endpoint of the OpenAI form."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import openai

from relquery.arrays import Float32s
from relquery.backends.provider.failures import reason_to_stop, words
from relquery.backends.provider.server import OpenAIConfig, Server
from relquery.errors import ConfigError, ModelError, RequestError
from relquery.retrieval.embedder import Embedder, as_vectors

_TEXTS, _CHARACTERS = 256, 200_000  # of one request, at most


class Endpoint(Embedder):
    """model: the name that the server knows. dimensions: of the vectors; None for the model's own.

    Raises ModelError without a key, and ConfigError.
    """

    def __init__(
        self, model: str, config: OpenAIConfig | None = None, dimensions: int | None = None
    ) -> None:
        if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
            raise ConfigError(f"dimensions is {dimensions!r}; it must be a whole number above 0.")
        self._server = Server(model, config or OpenAIConfig())
        self._dimensions = dimensions
        self._name = f"{self._server.name} {dimensions or 'all'}"

    @property
    def name(self) -> str:
        """See Embedder."""
        return self._name

    def embed(self, texts: Sequence[str]) -> Float32s:
        """See Embedder. Raises ModelError for the key, RequestError for other failures."""
        parts = list(_parts(texts))
        with ThreadPoolExecutor(1) as thread:  # this one may have a loop of its own
            found = thread.submit(lambda: asyncio.run(self._embed(parts))).result()
        vectors = [vector for part in found for vector in part]
        return as_vectors(vectors, len(texts), self.name) if texts else np.zeros((0, 0), np.float32)

    async def _embed(self, parts: list[list[str]]) -> list[list[object]]:
        free = asyncio.Semaphore(self._server.config.max_concurrency)
        async with self._server.client() as client:

            async def ask(part: list[str]) -> list[object]:
                async with free:
                    return await self._ask(client, part)

            return await asyncio.gather(*map(ask, parts))

    async def _ask(self, client: openai.AsyncOpenAI, part: list[str]) -> list[object]:
        more: dict[str, Any] = {} if self._dimensions is None else {"dimensions": self._dimensions}
        try:
            reply = await client.embeddings.create(model=self._server.model, input=part, **more)
        except openai.APIError as error:
            said = words(error, self._server.config.timeout)
            if (why := reason_to_stop(error, said, client.base_url)) is not None:
                raise ModelError(why) from error
            raise RequestError(f"The embedder {self.name} failed. {said}") from error
        except ValueError as error:  # the client's, for a reply without vectors
            raise RequestError(f"The embedder {self.name} returned no vectors: {error}.") from error
        by_place = {one.index: one.embedding for one in reply.data}
        if sorted(by_place) != list(range(len(part))):
            raise RequestError(
                f"The embedder {self.name} returned {len(by_place)} vectors for {len(part)} texts."
            )
        return [by_place[at] for at in range(len(part))]


def _parts(texts: Sequence[str]) -> list[list[str]]:
    """Texts for one request each. Endpoints refuse an empty text, so it is sent as a space."""
    parts: list[list[str]] = [[]]
    size = 0
    for text in texts:
        if parts[-1] and (len(parts[-1]) == _TEXTS or size + len(text) > _CHARACTERS):
            parts.append([])
            size = 0
        parts[-1].append(text or " ")
        size += len(text)
    return parts if parts[0] else []
