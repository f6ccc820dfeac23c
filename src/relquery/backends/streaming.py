"""A provider, or any server of the chat-completions form, heard token by token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import openai

from relquery.backends.chat import no_answer, short, to_body, to_messages
from relquery.backends.openai import OpenAIBackend, OpenAIConfig
from relquery.errors import ModelError, RequestError
from relquery.prompt import Answer, Finish, Prompt, Sampling

_CHECK_SECONDS = 10.0

# What a request may do without, and the words by which a server refuses it.
_DISPENSABLE = {"max_tokens": "max_completion_tokens", "stream_options": "stream_options"}

# Where a first token may show: in the answer, or in what goes before it.
_SPOKEN = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls")


class StreamingBackend(OpenAIBackend):
    """As OpenAIBackend, for those who time each request: `async with backend: backend.ask(...)`.

    tells_tokens, tells_cached: whether the server has told how many tokens a request had; and how
    many of a prompt's came from the cache, which it may leave out where there are none.
    """

    def __init__(self, model: str, config: OpenAIConfig | None = None) -> None:
        super().__init__(model, config)
        self.tells_tokens = self.tells_cached = False
        self._answered = False
        self._refused: set[str] = set()  # what the server was found to do without

    async def __aenter__(self) -> Self:
        """Open connections. Raises ModelError if no server is there."""
        self._sdk = self._client()
        try:
            await _check(self._sdk)
        except BaseException:
            await self._sdk.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sdk.close()

    async def ask(
        self, prompt: Prompt, max_tokens: int, user: str, heard: Callable[[], None]
    ) -> Answer:
        """The answer, whole or cut by `max_tokens`; `heard` is called when its first token comes.

        user: who asks, "" for nobody in particular. A request that fails is an answer with an
        error. Raises ModelError while none was answered, if the server refuses all alike.
        """
        try:
            messages = to_messages(prompt)
        except RequestError as error:
            return no_answer(str(error), 0)
        while True:
            without = frozenset(self._refused)
            body = to_body(messages, Sampling(max_tokens), without)
            if "stream_options" not in without:
                body["stream_options"] = {"include_usage": True}
            if user:
                body["user"] = user
            try:
                return await self._stream({"model": self.model, "stream": True, **body}, heard)
            except openai.APIError as error:
                self._refused |= _refused(error)
                if self._refused <= without:
                    return self._failed(error)
            except Exception as error:  # the SDK's other errors, of this request alone
                return no_answer(f"The request failed: {error!r}", 1)

    async def _stream(self, body: dict[str, Any], heard: Callable[[], None]) -> Answer:
        said = _Said()
        # As plain JSON: to build the SDK's objects takes longer than what is to be measured.
        stream = await self._sdk.post(
            "/chat/completions",
            body=body,
            cast_to=object,
            stream=True,
            stream_cls=openai.AsyncStream[object],
        )
        async with stream:
            async for chunk in stream:
                began = said.began
                try:
                    said.hear(chunk)
                except (TypeError, AttributeError):
                    text = f"A part of the stream is no chat completion: {short(repr(chunk))}"
                    return no_answer(text, 1)
                if said.began and not began:
                    heard()
        self._answered |= said.finish is not None
        self.tells_tokens |= bool(said.usage)
        self.tells_cached |= said.cached is not None
        return said.answer()

    def _failed(self, error: openai.APIError) -> Answer:
        said, url = self._words(error), self._sdk.base_url
        status = getattr(error, "status_code", None)
        if self._answered:
            return no_answer(said, 1)
        if status == 401:
            raise _wrong_key(url, said) from error
        if status in (403, 404):
            raise ModelError(
                f"{url} does not serve the model '{self.model}'. {said} Check the model's name, "
                "whether the key may use it, and the server's address, which usually ends in /v1."
            ) from error
        if error.code == "insufficient_quota":
            raise ModelError(f"The account has no quota left. {said}") from error
        return no_answer(said, 1)

    def _words(self, error: openai.APIError) -> str:
        if isinstance(error, openai.APITimeoutError):
            return f"Nothing was heard for {self.config.timeout:g} seconds. Raise the timeout."
        return _said(error)


@dataclass(slots=True)
class _Said:
    """What a stream has said so far. began: whether a token of it was heard of."""

    text: str = ""
    finish: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    began: bool = False

    def hear(self, chunk: Any) -> None:
        """The next part. Raises TypeError or AttributeError if it is of another form."""
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            self.text += delta.get("content") or ""
            self.finish = choice.get("finish_reason") or self.finish
            # The first part may name the role alone, before the prompt is begun.
            self.began |= bool(self.finish) or any(delta.get(name) for name in _SPOKEN)

    @property
    def cached(self) -> int | None:
        details = self.usage.get("prompt_tokens_details") or {}
        cached: int | None = details.get("cached_tokens")
        return cached

    def answer(self) -> Answer:
        finish, problem = Finish.ERROR, None
        match self.finish:
            case "length":
                finish = Finish.LENGTH
            case "content_filter":
                problem = "The provider's content filter withheld the answer."
            case None:
                problem = (
                    "No whole answer was streamed. See the server's log, and whether it can stream."
                )
            case _:
                finish = Finish.STOP
        return Answer(
            self.text if problem is None else None,
            finish,
            problem,
            self.usage.get("prompt_tokens") or 0,
            self.cached or 0,
            self.usage.get("completion_tokens") or 0,
        )


async def _check(client: openai.AsyncOpenAI) -> None:
    """Whether a server is there that takes the key. Raises ModelError."""
    url = client.base_url
    try:
        await client.with_options(timeout=_CHECK_SECONDS).get("/models", cast_to=object)
    except openai.AuthenticationError as error:
        raise _wrong_key(url, _said(error)) from error
    except openai.APIStatusError:
        pass  # not all servers list their models
    except openai.APIConnectionError as error:
        if not _reached(error):
            raise ModelError(
                f"{url} cannot be reached. {_said(error)} Start the server, or check its address."
            ) from error


def _reached(error: openai.APIConnectionError) -> bool:
    """Whether a server that took the connection was too slow, as a busy one may be."""
    late = isinstance(error, openai.APITimeoutError)
    return late and type(error.__cause__).__name__ != "ConnectTimeout"


def _wrong_key(url: object, said: str) -> ModelError:
    return ModelError(
        f"{url} refuses the API key. {said} Give this server's key; on the command line, "
        "--api-key-env names the variable that holds it."
    )


def _refused(error: openai.APIError) -> set[str]:
    """What to leave out so that the server takes the request; empty if that would not help."""
    if not isinstance(error, (openai.BadRequestError, openai.UnprocessableEntityError)):
        return set()
    said = error.message.lower()
    return {name for name, word in _DISPENSABLE.items() if word in said}


def _said(error: openai.APIError) -> str:
    """What went wrong, in the server's words where it has some."""
    if isinstance(error, openai.APIStatusError):
        body = error.body
        said = body.get("message") or body.get("detail") or body if isinstance(body, dict) else body
        text = short(str(said or error.response.reason_phrase)).rstrip(".")
        return f"The server answered {error.status_code}: {text}."
    if isinstance(error, openai.APIConnectionError):
        return f"The connection failed: {short(str(error.__cause__ or error)).rstrip('.')}."
    return f"The server broke off: {short(error.message).rstrip('.')}."
