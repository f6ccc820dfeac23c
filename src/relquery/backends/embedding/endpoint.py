"""An embeddings endpoint of the OpenAI form: its requests, and vectors as it sent them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
import openai

from relquery.arrays import Float32s
from relquery.backends.embedding.asking import Ask, Asking, Sizes, TooLargeError
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.errors import reason_to_stop
from relquery.backends.provider.server import Server
from relquery.backends.wires.errors import sdk_error, short
from relquery.errors import ConfigError, ModelError, RelqueryError, RequestError, type_of
from relquery.retrieval.embedder import Embedder, Part, as_vectors

_SHOWN = 5  # indices
_OF_ERRORS = ("error", "detail", "message")


def to_vectors(reply: str, texts: Sequence[str], name: str, url: object) -> Float32s:
    """(texts, dimensions), from the JSON text of a reply. Raises RequestError.

    name: of the embedder. url: of the server.
    """
    data = _data(reply, name, url)
    if len(data) != len(texts):
        raise RequestError(
            f"The embedder {name} returned {len(data)} vectors for {len(texts)} texts."
        )
    indices = [one.get("index") for one in data]
    places = {at: place for place, at in enumerate(indices) if type(at) is int}
    if sorted(places) != list(range(len(texts))):
        some = ", ".join(map(str, indices[:_SHOWN])) + (", ..." if len(data) > _SHOWN else "")
        raise RequestError(
            f"The embedder {name} returned vectors with the indices {some}; expected each of 0 to "
            f"{len(texts) - 1} once, as they say which text a vector is of."
        )
    found = [_numbers(data[places[at]].get("embedding")) for at in range(len(texts))]
    vectors = as_vectors(found, len(texts), name)
    for at in np.flatnonzero(~vectors.any(axis=1)).tolist():
        if texts[at].strip():
            raise RequestError(
                f"The embedder {name} returned a vector of zeros for the text {excerpt(texts[at])}."
            )
    return vectors


def excerpt(text: str) -> str:
    """The first characters of a text, in quotes."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _data(reply: str, name: str, url: object) -> list[dict[str, Any]]:
    try:
        body = json.loads(reply)
    except (ValueError, RecursionError):
        raise _unlike(name, url, f"no JSON but {short(reply)!r}") from None
    if not isinstance(body, dict):
        raise _unlike(name, url, f"{type_of(body)} of JSON in place of an object")
    data = body.get("data")
    if isinstance(data, list) and data and all(isinstance(one, dict) for one in data):
        return data
    said = next((body[key] for key in _OF_ERRORS if body.get(key)), None)
    if said is None:
        raise _unlike(name, url, f"no vectors but {short(reply)}")
    said = said.get("message", said) if isinstance(said, dict) else said
    raise RequestError(
        f"The embedder {name} failed. The server answered: {short(str(said)).rstrip('.')}."
    )


def _unlike(name: str, url: object, got: str) -> RequestError:
    return RequestError(
        f"The embedder {name} returned {got}. Check that {url} has embeddings of the OpenAI form; "
        "base_url usually ends in /v1."
    )


def _numbers(embedding: object) -> object:
    """Numbers in base64 as an array, others as they are."""
    if not isinstance(embedding, str):
        return embedding
    try:
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
    except ValueError:
        return embedding


# Of a request with too many texts, or with one that is too long.
_TOO_LARGE = re.compile(
    r"batch|\binputs?\b.*\b(exceed|maximum|most|less|limit|many|large|long|length)"
    r"|too.(many|large|long|big)|(maximum|exceed).*(context|tokens|length|size|inputs?)"
    r"|context.?(length|window|size)",
    re.IGNORECASE | re.DOTALL,
)


class Endpoint(Embedder):
    """model: the name that the server knows. dimensions: of the vectors; None for the model's own.

    Raises ModelError without a key, and ConfigError.
    """

    def __init__(
        self, model: str, config: ProviderConfig | None = None, dimensions: int | None = None
    ) -> None:
        if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
            raise ConfigError(f"dimensions is {dimensions!r}; it must be a whole number above 0.")
        self._server = Server(model, config or ProviderConfig())
        self._dimensions = dimensions
        self._sizes = Sizes()
        self._name = self._server.name + (f" dimensions={dimensions}" if dimensions else "")

    @property
    def name(self) -> str:
        return self._name

    def embed(self, texts: Sequence[str]) -> Float32s:
        """See Embedder. Raises ModelError for the key, RequestError for other failures."""
        found: list[Float32s | None] = [None] * len(texts)
        for places, vectors in self.embed_in_parts(texts):
            for at, vector in zip(places, vectors, strict=True):
                found[at] = vector
        return as_vectors(found, len(texts), self.name) if texts else np.zeros((0, 0), np.float32)

    def embed_in_parts(self, texts: Sequence[str]) -> Iterator[Part]:
        """See Embedder. If a request fails, those under way are waited for, and no other is sent.
        A text that the server refuses does not keep the others from being embedded.
        """
        if texts:
            config = self._server.config
            yield from Asking(texts, self._opened, self._sizes, config.max_concurrency).parts()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Ask]:
        async with self._server.sdk() as client:
            yield partial(self._ask, client)

    async def _ask(self, client: openai.AsyncOpenAI, texts: list[str]) -> Float32s:
        """(texts, dimensions). Raises ModelError, TooLargeError and RequestError."""
        more: dict[str, Any] = {} if self._dimensions is None else {"dimensions": self._dimensions}
        given = [text or " " for text in texts]  # endpoints refuse an empty text
        create = client.embeddings.with_raw_response.create
        try:
            reply = await create(model=self._server.model, input=given, **more)
        except openai.APIError as error:
            raise self._problem(error, texts, client.base_url) from error
        vectors = to_vectors(reply.http_response.text, texts, self.name, client.base_url)
        if self._dimensions is not None and vectors.shape[1] != self._dimensions:
            raise RequestError(
                f"The embedder {self.name} returned vectors of {vectors.shape[1]} dimensions in "
                f"place of {self._dimensions}. The model may have one size only: leave out "
                "dimensions."
            )
        return vectors

    def _problem(self, error: openai.APIError, texts: list[str], url: object) -> RelqueryError:
        trouble = sdk_error(error, self._server.config.timeout)
        said, status = trouble.words, trouble.status
        if (why := reason_to_stop(trouble, url, self._server.provider.key)) is not None:
            return ModelError(why)
        problem = f"The embedder {self.name} failed. {said}"
        if status != 413 and not (status in (400, 422) and _TOO_LARGE.search(said)):
            return RequestError(problem)
        if len(texts) > 1:
            return TooLargeError(problem)
        return TooLargeError(
            f"{problem} It was asked for the text {excerpt(texts[0])}. Shorten the text; in SQL, "
            "e.g. substring(column, 1, 2000)."
        )
