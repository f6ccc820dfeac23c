"""An embeddings endpoint of the OpenAI form: several requests at once, smaller ones if need be."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from itertools import count
from queue import Empty, SimpleQueue
from random import Random
from typing import Any

import numpy as np

from relquery.arrays import Float32s
from relquery.backends.provider.backend import in_background
from relquery.backends.provider.client import ProviderClient
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.errors import reason_to_stop
from relquery.backends.provider.failure_policy import backoff
from relquery.backends.provider.server import ProviderServer
from relquery.backends.wires.errors import ProviderError, short
from relquery.errors import ConfigError, ModelError, RelqueryError, RequestError, type_of
from relquery.retrieval.embedder import Embedder, Part, as_vectors

_SHOWN = 5  # indices
_OF_ERRORS = ("error", "detail", "message")
_MOST_REFUSED = 10  # texts, until the others are not asked, either
_TICK = 0.25  # seconds that a wait lasts at most: a signal may reach a thread that does not wait
_TEXTS, _CHARACTERS = 256, 200_000  # of one request, at most
# Of a request with too many texts, or with one that is too long.
_TOO_LARGE = re.compile(
    r"batch|\binputs?\b.*\b(exceed|maximum|most|less|limit|many|large|long|length)"
    r"|too.(many|large|long|big)|(maximum|exceed).*(context|tokens|length|size|inputs?)"
    r"|context.?(length|window|size)",
    re.IGNORECASE | re.DOTALL,
)


class NoVectorsError(RequestError):
    """A reply without a vector for each text, as servers give in passing."""


class TooLargeError(RequestError):
    """A request of several texts that may be served in parts, or of one that is too long."""


class Endpoint(Embedder):
    """model: the name that the server knows. dimensions: of the vectors; None for the model's own.

    Raises ModelError without a key, and ConfigError.
    """

    def __init__(
        self, model: str, config: ProviderConfig | None = None, dimensions: int | None = None
    ) -> None:
        if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
            raise ConfigError(f"dimensions is {dimensions!r}; it must be a whole number above 0.")
        self.server = ProviderServer(model, config or ProviderConfig())
        self.refused_sizes: list[tuple[int, int]] = []
        """(texts, characters) of requests that the server took in halves."""
        self._dimensions = dimensions
        self._name = self.server.name + (f" dimensions={dimensions}" if dimensions else "")

    @property
    def name(self) -> str:
        return self._name

    def embed(self, texts: Sequence[str]) -> Float32s:
        """See Embedder. Raises ModelError for the key, RequestError for other failures."""
        vectors_by_place: list[Float32s | None] = [None] * len(texts)
        for places, vectors in self.embed_in_parts(texts):
            for place, vector in zip(places, vectors, strict=True):
                vectors_by_place[place] = vector
        return (
            as_vectors(vectors_by_place, len(texts), self.name)
            if texts
            else np.zeros((0, 0), np.float32)
        )

    def embed_in_parts(self, texts: Sequence[str]) -> Iterator[Part]:
        """See Embedder. If a request fails, those under way are waited for, and no other is sent.
        A text that the server refuses does not keep the others from being embedded.
        """
        if texts:
            yield from _Run(self, texts).parts()

    async def ask(self, client: ProviderClient, texts: list[str]) -> Float32s:
        """(texts, dimensions). Raises ModelError, TooLargeError and RequestError."""
        # Endpoints refuse an empty text.
        body: dict[str, Any] = {
            "model": self.server.model,
            "input": [text or " " for text in texts],
            "encoding_format": "base64",
        }
        body |= {} if self._dimensions is None else {"dimensions": self._dimensions}
        for tries in count(1):
            try:
                reply = await client.call("POST", "/embeddings", within=client.timeout, json=body)
                vectors = to_vectors(reply.text, texts, self.name, client.url)
                break
            except ProviderError as error:
                raise self._problem(error, texts, client.url) from error
            except NoVectorsError:
                if tries > client.max_retries:
                    raise
            await asyncio.sleep(backoff(tries, None, Random()))
        if self._dimensions is not None and vectors.shape[1] != self._dimensions:
            raise RequestError(
                f"The embedder {self.name} returned vectors of {vectors.shape[1]} dimensions in "
                f"place of {self._dimensions}. The model may have one size only: leave out "
                "dimensions."
            )
        return vectors

    def _problem(self, error: ProviderError, texts: list[str], url: str) -> RelqueryError:
        said, status = error.words, error.status
        if (why := reason_to_stop(error, url, self.server.provider.key)) is not None:
            return ModelError(why)
        problem = f"The embedder {self.name} failed. {said}"
        if status != 413 and not (status in (400, 422) and _TOO_LARGE.search(said)):
            return RequestError(problem)
        if len(texts) > 1:
            return TooLargeError(problem)
        return TooLargeError(
            f"{problem} It was asked for the text {_excerpt(texts[0])}. Shorten the text; in SQL, "
            "e.g. substring(column, 1, 2000)."
        )


class _Run:
    """Texts on their way to vectors, in several requests at once."""

    def __init__(self, endpoint: Endpoint, texts: Sequence[str]) -> None:
        self._endpoint, self._texts = endpoint, texts
        self._problem: Exception | None = None
        """For which no further request is sent; those under way are waited for."""
        self._refused: list[RelqueryError] = []
        """Errors of single texts."""
        self._arrived: SimpleQueue[Part | None] = SimpleQueue()
        """None comes last."""

    def parts(self) -> Iterator[Part]:
        """What arrives, as it does; then raises the first error. What has arrived when the user
        interrupts it still comes.
        """
        interrupt: KeyboardInterrupt | None = None
        stop = in_background(self._send_all())  # this thread may have a loop of its own
        try:
            is_over = False
            while not is_over:
                try:
                    with suppress(Empty):
                        while (part := self._arrived.get(timeout=_TICK)) is not None:
                            yield part
                        is_over = True
                except KeyboardInterrupt as error:
                    interrupt = error
                    stop()
        finally:
            stop()
        for problem in (interrupt, self._problem, *self._refused[:1]):
            if problem is not None:
                raise problem

    async def _send_all(self) -> None:
        server = self._endpoint.server
        free = asyncio.Semaphore(server.config.max_concurrency)

        async def send(client: ProviderClient, places: list[int]) -> None:
            async with free:
                await self._send(client, places)

        try:
            async with aclosing(server.client()) as client:
                await asyncio.gather(*(send(client, some) for some in self._requests()))
        except Exception as error:
            self._problem = self._problem or error
        finally:
            self._arrived.put(None)

    def _requests(self) -> Iterator[list[int]]:
        """The places of texts for one request each."""
        places: list[int] = []
        size = 0
        for index, text in enumerate(self._texts):
            if places and (len(places) == _TEXTS or size + len(text) > _CHARACTERS):
                yield places
                places, size = [], 0
            places.append(index)
            size += len(text)
        yield places

    async def _send(self, client: ProviderClient, places: list[int]) -> bool:
        """Ask for some texts, in halves if they are too many. Returns whether all have vectors."""
        if self._problem is not None or len(self._refused) >= _MOST_REFUSED:
            return False
        texts = [self._texts[place] for place in places]
        count, size, refused = len(texts), sum(map(len, texts)), self._endpoint.refused_sizes
        if count > 1 and any(count >= texts and size >= other for texts, other in refused):
            return await self._send_halves(client, places)
        try:
            vectors = await self._endpoint.ask(client, texts)
        except TooLargeError as error:
            if count == 1:
                self._refused.append(error)
                return False
            is_taken = await self._send_halves(client, places)
            if is_taken:  # else it may be for a single text
                refused.append((count, size))
            return is_taken
        except RelqueryError as error:
            self._problem = self._problem or error
            return False
        self._arrived.put((places, vectors))
        return True

    async def _send_halves(self, client: ProviderClient, places: list[int]) -> bool:
        middle = len(places) // 2
        first = await self._send(client, places[:middle])
        return await self._send(client, places[middle:]) and first


def to_vectors(reply: str, texts: Sequence[str], name: str, url: object) -> Float32s:
    """(texts, dimensions), from the JSON text of a reply. Raises RequestError.

    name: of the embedder. url: of the server.
    """
    data = _data(reply, name, url)
    if len(data) != len(texts):
        raise NoVectorsError(
            f"The embedder {name} returned {len(data)} vectors for {len(texts)} texts."
        )
    indices = [item.get("index") for item in data]
    places = {index: place for place, index in enumerate(indices) if type(index) is int}
    if sorted(places) != list(range(len(texts))):
        some = ", ".join(map(str, indices[:_SHOWN])) + (", ..." if len(data) > _SHOWN else "")
        raise RequestError(
            f"The embedder {name} returned vectors with the indices {some}; expected each of 0 to "
            f"{len(texts) - 1} once, as they say which text a vector is of."
        )
    rows = [_numbers(data[places[index]].get("embedding")) for index in range(len(texts))]
    vectors = as_vectors(rows, len(texts), name)
    for row in np.flatnonzero(~vectors.any(axis=1)).tolist():
        if texts[row].strip():
            text = _excerpt(texts[row])
            raise RequestError(
                f"The embedder {name} returned a vector of zeros for the text {text}."
            )
    return vectors


def _excerpt(text: str) -> str:
    """The first characters of a text, in quotes."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _data(reply: str, name: str, url: object) -> list[dict[str, Any]]:
    """What a reply has for each text. Raises NoVectorsError."""
    try:
        body = json.loads(reply)
    except (ValueError, RecursionError):
        body, got = None, f"no JSON but {short(reply)!r}"
    else:
        got = f"{type_of(body)} of JSON in place of an object"
    if isinstance(body, dict):
        data = body.get("data")
        if isinstance(data, list) and data and all(isinstance(item, dict) for item in data):
            return data
        said = next((body[key] for key in _OF_ERRORS if body.get(key)), None)
        if said is not None:
            said = said.get("message", said) if isinstance(said, dict) else said
            raise NoVectorsError(
                f"The embedder {name} failed. The server answered: {short(str(said)).rstrip('.')}."
            )
        got = f"no vectors but {short(reply)}"
    raise NoVectorsError(
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
