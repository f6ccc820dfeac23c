"""An embeddings endpoint of the OpenAI form: several requests at once, smaller ones if need be."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from relquery.arrays import Float32s
from relquery.backends.provider.client import ProviderClient
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.errors import reason_to_stop
from relquery.backends.provider.server import Server
from relquery.backends.wires.errors import ProviderError, short
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


_MOST_REFUSED = 10  # texts, until the others are not asked, either
_TICK = 0.25  # seconds that a wait lasts at most: a signal may reach a thread that does not wait
_TEXTS, _CHARACTERS = 256, 200_000  # of one request, at most


class TooLargeError(RequestError):
    """A request of several texts that may be served in parts, or of one that is too long."""


Ask = Callable[[list[str]], Awaitable[Float32s]]


@dataclass(slots=True)
class Sizes:
    """What a server was found not to take. refused: (texts, characters) of requests that it took
    in halves.
    """

    refused: list[tuple[int, int]] = field(default_factory=list)

    def parts(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """The places of texts for one request each."""
        places: list[int] = []
        size = 0
        for at, text in enumerate(texts):
            if places and (len(places) == _TEXTS or size + len(text) > _CHARACTERS):
                yield places
                places, size = [], 0
            places.append(at)
            size += len(text)
        if places:
            yield places

    def are_known(self, texts: int, characters: int) -> bool:
        """Whether a request is at least as large as one that was refused."""
        return any(texts >= one and characters >= other for one, other in self.refused)


@dataclass(slots=True)
class EmbeddingRun:
    """opened: gives what sends one request. concurrency: requests under way at once. problem: for
    which no further one is sent; those under way are waited for. refused: errors of single texts.
    """

    texts: Sequence[str]
    opened: Callable[[], AbstractAsyncContextManager[Ask]]
    sizes: Sizes
    concurrency: int
    problem: RelqueryError | None = None
    refused: list[RelqueryError] = field(default_factory=list)
    _arrived: deque[Part] = field(default_factory=deque)
    _bell: SimpleQueue[None] = field(default_factory=SimpleQueue)
    _task: asyncio.Task[None] | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _is_over: bool = False

    def parts(self) -> Iterator[Part]:
        """What arrives, as it does; then raises the first error. What has arrived when the user
        interrupts it still comes.
        """
        interrupt: KeyboardInterrupt | None = None
        with ThreadPoolExecutor(1) as thread:  # this one may have a loop of its own
            running = thread.submit(self._run)
            running.add_done_callback(lambda _: self._bell.put(None))
            try:
                has_run = False
                while not has_run or self._arrived:
                    try:
                        has_run = running.done()  # read before what has arrived: nothing does later
                        while self._arrived:
                            yield self._arrived[0]
                            self._arrived.popleft()
                        if not has_run:
                            with suppress(Empty):
                                self._bell.get(timeout=_TICK)
                    except KeyboardInterrupt as error:
                        interrupt = error
                        self._end()
            finally:
                self._end()
        if interrupt is not None:
            raise interrupt
        running.result()
        for problem in (self.problem, *self.refused[:1]):
            if problem is not None:
                raise problem

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._send_all())

    def _end(self) -> None:
        """Send nothing more, and leave what is under way."""
        self._is_over = True
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def _send_all(self) -> None:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        free = asyncio.Semaphore(self.concurrency)

        async with self.opened() as ask:

            async def send(places: list[int]) -> None:
                async with free:
                    await self._send(ask, places)

            await asyncio.gather(*map(send, self.sizes.parts(self.texts)))

    async def _send(self, ask: Ask, places: list[int]) -> bool:
        """Ask for some texts, in halves if they are too many. Returns whether all have vectors."""
        if self._is_over or self.problem is not None or len(self.refused) >= _MOST_REFUSED:
            return False
        texts = [self.texts[at] for at in places]
        size = len(texts), sum(map(len, texts))
        if len(texts) > 1 and self.sizes.are_known(*size):
            return await self._send_halves(ask, places)
        try:
            vectors = await ask(texts)
        except TooLargeError as error:
            if len(texts) == 1:
                self.refused.append(error)
                return False
            is_taken = await self._send_halves(ask, places)
            if is_taken:  # else it may be for a single text
                self.sizes.refused.append(size)
            return is_taken
        except RelqueryError as error:
            self.problem = self.problem or error
            return False
        self._arrived.append((places, vectors))
        self._bell.put(None)
        return True

    async def _send_halves(self, ask: Ask, places: list[int]) -> bool:
        middle = len(places) // 2
        first = await self._send(ask, places[:middle])
        return await self._send(ask, places[middle:]) and first


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
            yield from EmbeddingRun(
                texts, self._opened, self._sizes, config.max_concurrency
            ).parts()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Ask]:
        async with aclosing(self._server.client()) as client:
            yield partial(self._ask, client)

    async def _ask(self, client: ProviderClient, texts: list[str]) -> Float32s:
        """(texts, dimensions). Raises ModelError, TooLargeError and RequestError."""
        # Endpoints refuse an empty text.
        body: dict[str, Any] = {
            "model": self._server.model,
            "input": [text or " " for text in texts],
            "encoding_format": "base64",
        }
        body |= {} if self._dimensions is None else {"dimensions": self._dimensions}
        try:
            reply = await client.call("POST", "/embeddings", json=body)
        except ProviderError as error:
            raise self._problem(error, texts, client.url) from error
        vectors = to_vectors(reply.text, texts, self.name, client.url)
        if self._dimensions is not None and vectors.shape[1] != self._dimensions:
            raise RequestError(
                f"The embedder {self.name} returned vectors of {vectors.shape[1]} dimensions in "
                f"place of {self._dimensions}. The model may have one size only: leave out "
                "dimensions."
            )
        return vectors

    def _problem(self, error: ProviderError, texts: list[str], url: str) -> RelqueryError:
        said, status = error.words, error.status
        if (why := reason_to_stop(error, url, self._server.provider.key)) is not None:
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
