"""A provider, or any server of the OpenAI chat-completions form, as a backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any

import openai

from relquery.backends.chat import no_answer, short, to_answer, to_body, to_messages
from relquery.errors import ConfigError, ModelError, RequestError
from relquery.prompt import Answer, Prompt, Sampling

_DEFAULT_HOST = "api.openai.com"
_CONNECT_SECONDS = 10.0
_STOP_SECONDS = 5.0
_MOST_STOPS = 4
_MOST_CONNECTIONS = 1000  # of the SDK's pool; more would wait for a connection until the timeout

# What a request may do without, and the words by which a server refuses it.
_DISPENSABLE = {
    "max_tokens": ("max_completion_tokens",),
    "response_format": ("response_format", "json_schema"),
    "top_p": ("top_p",),
    "neighbours": ("alternat",),  # two messages of one role in a row
}

Item = tuple[int, Answer] | Exception | None


@dataclass(frozen=True, slots=True)
class OpenAIConfig:
    """How a provider is called.

    base_url: the server, usually ending in /v1; None: OPENAI_BASE_URL, else OpenAI.
    api_key: None: OPENAI_API_KEY.
    max_concurrency: requests of one query stage that are under way at once.
    timeout: seconds until a request without an answer is given up and tried again.
    max_retries: tries after the first, when the connection fails or the server answers 408, 409,
        429 or 5xx; after the seconds that the server names, else after 0.5, 1, 2, 4, 8, 8, ...
    """

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    max_concurrency: int = 16
    timeout: float = 60.0
    max_retries: int = 5

    def __post_init__(self) -> None:
        if not 1 <= self.max_concurrency <= _MOST_CONNECTIONS:
            raise ConfigError(
                f"max_concurrency is {self.max_concurrency}; "
                f"it must be from 1 to {_MOST_CONNECTIONS}."
            )
        if not self.timeout > 0:
            raise ConfigError(f"timeout is {self.timeout}; it must be above 0 seconds.")
        if self.max_retries < 0:
            raise ConfigError(f"max_retries is {self.max_retries}; it must not be negative.")


class OpenAIBackend:
    """Asks a server, `max_concurrency` prompts at a time, started in the order given.

    model: the name that the server knows. Raises ModelError without a key, ConfigError.
    """

    def __init__(self, model: str, config: OpenAIConfig | None = None) -> None:
        if not model:
            raise ConfigError("The model's name is empty. Write openai:NAME, e.g. openai:gpt-4o.")
        self.model, self.config = model, config or OpenAIConfig()
        url = self._client().base_url
        server = url.netloc.decode() + url.path.rstrip("/").removesuffix("/v1")
        self._at = "" if server == _DEFAULT_HOST else f"@{server}"

    @property
    def name(self) -> str:
        """`openai:MODEL`, and `@SERVER` unless it is OpenAI."""
        return f"openai:{self.model}{self._at}"

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        """See Backend.answer. Raises ModelError when the server refuses all requests alike."""
        if len(sampling.stop) > _MOST_STOPS:
            raise ConfigError(
                f"stop holds {len(sampling.stop)} strings; a provider takes at most {_MOST_STOPS}."
            )
        items: SimpleQueue[Item] = SimpleQueue()
        stop = _in_background(self._serve(prompts, sampling, items.put))
        try:
            while (item := items.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            stop()

    def close(self) -> None:
        """Nothing is held between two calls of `answer`."""

    async def _serve(
        self, prompts: Sequence[Prompt], sampling: Sampling, deliver: Callable[[Item], None]
    ) -> None:
        """Deliver (index, answer) of every prompt, or what ended the work; None comes last."""
        waiting = iter(enumerate(prompts))

        async def work(batch: _Batch) -> None:
            for index, prompt in waiting:
                deliver((index, await batch.ask(prompt)))

        try:
            async with self._client() as client, asyncio.TaskGroup() as workers:
                batch = _Batch(client, self.model, sampling, self.config.timeout)
                for _ in range(min(self.config.max_concurrency, len(prompts))):
                    workers.create_task(work(batch))
        except Exception as error:
            deliver(error.exceptions[0] if isinstance(error, ExceptionGroup) else error)
        finally:
            deliver(None)

    def _client(self) -> openai.AsyncOpenAI:
        timeout = self.config.timeout
        try:
            client = openai.AsyncOpenAI(
                base_url=self.config.base_url,
                api_key=self.config.api_key,
                timeout=openai.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
                max_retries=self.config.max_retries,
            )
        except openai.OpenAIError as error:
            raise _no_key("No API key is set") from error
        except Exception as error:
            raise ConfigError(
                f"No client can be made: {error}. Check base_url, OPENAI_BASE_URL and HTTP_PROXY."
            ) from error
        url, key = client.base_url, client.api_key
        if url.scheme not in ("http", "https") or not url.host:
            raise ConfigError(f"base_url is '{url}'; it must start with http:// or https://.")
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise _no_key("The API key is empty or holds characters that no key has")
        return client


def _no_key(what: str) -> ModelError:
    return ModelError(
        f"{what}. Set OPENAI_API_KEY or pass api_key (any word for a server that asks for none)."
    )


@dataclass(slots=True)
class _Batch:
    """Requests with one sampling. refused: what the server was found to do without."""

    client: openai.AsyncOpenAI
    model: str
    sampling: Sampling
    timeout: float
    refused: set[str] = field(default_factory=set)
    reached: bool = False

    async def ask(self, prompt: Prompt) -> Answer:
        """Raises ModelError if no prompt can be answered."""
        try:
            messages = to_messages(prompt)
        except RequestError as error:
            return no_answer(str(error), 0)
        attempts = 0
        while True:
            without = frozenset(self.refused)
            try:
                text, tries = await self._send(to_body(messages, self.sampling, without))
            except openai.APIError as error:
                attempts += 1 + int(error.request.headers.get("x-stainless-retry-count", 0))
                self.reached |= isinstance(error, openai.APIStatusError)
                self.refused |= _refused(error, self.sampling)
                if self.refused <= without:
                    return self._failed(error, attempts)
            except Exception as error:  # the SDK's other errors, which no retry would mend
                return no_answer(f"The request failed: {error!r}", attempts + 1)
            else:
                return to_answer(text, self.sampling, attempts + tries)

    async def _send(self, body: dict[str, Any]) -> tuple[str, int]:
        """What the server sent back, and how many tries it took. Retries are the SDK's."""
        create = self.client.chat.completions.with_raw_response.create
        reply = await create(model=self.model, **body)
        self.reached = True
        return reply.http_response.text, 1 + reply.retries_taken

    def _failed(self, error: openai.APIError, attempts: int) -> Answer:
        said = _said(error, self.timeout)
        reason = self._reason_to_stop(error, said)
        if reason is not None:
            raise ModelError(reason) from error
        tries = f" ({attempts} attempts)" if attempts > 1 else ""
        return no_answer(said + tries, attempts)

    def _reason_to_stop(self, error: openai.APIError, said: str) -> str | None:
        """What is wrong, and its remedy, where every other request would fail alike."""
        url = self.client.base_url
        match getattr(error, "status_code", None):
            case 401:
                return (
                    f"{url} refuses the API key. {said} Set OPENAI_API_KEY to a key of this server."
                )
            case 403 | 404:
                return (
                    f"{url} does not serve the model '{self.model}'. {said} Check the model's "
                    "name, whether the key may use it, and base_url, which usually ends in /v1."
                )
        if error.code == "insufficient_quota":
            return f"The account has no quota left. {said}"
        if not self.reached and _while_connecting(error):
            return f"{url} cannot be reached. {said} Start the server, or check base_url."
        return None


def _refused(error: openai.APIError, sampling: Sampling) -> set[str]:
    """What to leave out so that the server takes the request; empty if that would not help."""
    if not isinstance(error, (openai.BadRequestError, openai.UnprocessableEntityError)):
        return set()
    said = error.message.lower()
    kept = set() if sampling.allowed else {"response_format"}  # it was not sent
    if sampling.top_p < 1:
        kept.add("top_p")
    names = {name for name, words in _DISPENSABLE.items() if any(word in said for word in words)}
    return names - kept


def _said(error: openai.APIError, timeout: float) -> str:
    """What went wrong, in the server's words where it has some."""
    if isinstance(error, openai.APIStatusError):
        body = error.body
        said = body.get("message") or body.get("detail") or body if isinstance(body, dict) else body
        text = short(str(said or error.response.reason_phrase)).rstrip(".")
        return f"The server answered {error.status_code}: {text}."
    if isinstance(error, openai.APITimeoutError) and not _while_connecting(error):
        return f"No answer within {timeout:g} seconds. Raise timeout, or lower max_concurrency."
    return f"The connection failed: {error.__cause__ or error}."


def _while_connecting(error: openai.APIError) -> bool:
    # By name: the classes are httpx's or httpx2's, by the version of the SDK.
    return type(error.__cause__).__name__ in ("ConnectError", "ConnectTimeout")


def _in_background(work: Coroutine[Any, Any, None]) -> Callable[[], None]:
    """Run a coroutine in a thread of its own; gives a function that cancels it and waits."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)

    def run() -> None:
        with closing(loop):
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
            loop.run_until_complete(loop.shutdown_asyncgens())

    def stop() -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing is left to cancel
            loop.call_soon_threadsafe(task.cancel)
        thread.join(_STOP_SECONDS)

    # A daemon, so that a name lookup that hangs does not keep the process.
    thread = Thread(target=run, name="relquery-provider", daemon=True)
    thread.start()
    return stop
