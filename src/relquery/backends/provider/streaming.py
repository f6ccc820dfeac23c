"""A server of the chat-completions form, heard token by token."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Self

from relquery.backends.provider.client import ProviderClient
from relquery.backends.provider.codec import RequestCodec
from relquery.backends.provider.errors import not_served
from relquery.backends.provider.server import Server
from relquery.backends.wires.errors import ProviderError, short
from relquery.backends.wires.messages import to_messages
from relquery.backends.wires.openai_chat import ChatStream, OpenAIChat
from relquery.backends.wires.reply import no_answer
from relquery.backends.wires.wire import Json
from relquery.errors import ModelError, RequestError, warn
from relquery.prompt import Answer, Finish, Prompt, Sampling

_CHECK_SECONDS = 10.0
_UNENDED = "No whole answer was streamed. See the server's log, and whether it can stream."


class StreamingClient:
    """For those who time each request: `async with StreamingClient(server) as streaming: ...`.

    tells_tokens, tells_cached: whether the server has told how many tokens a request had; and how
    many of a prompt's came from the cache, which it may leave out where there are none.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.tells_tokens = self.tells_cached = False
        self._answered = False

    async def __aenter__(self) -> Self:
        """Open connections. Raises ModelError if no server is there."""
        server = self.server
        self._client = ProviderClient(
            server.access, OpenAIChat(server.model), server.config.timeout
        )
        try:
            await self._check()
        except BaseException:
            await self._client.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

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
        codec = RequestCodec(self._client, self.server, Sampling(max_tokens), warn)
        dropped = codec.dropped
        while True:
            body = codec.body(messages, dropped) | {"stream": True}
            if "stream_options" not in dropped:
                body["stream_options"] = {"include_usage": True}
            if user:
                body["user"] = user
            try:
                answer = await self._stream(body, heard)
            except ProviderError as problem:
                spared = codec.spared(problem, dropped)
                if spared == dropped:
                    return self._failed(problem)
                dropped = spared
            else:
                codec.learn(dropped)
                return answer

    async def _stream(self, body: Json, heard: Callable[[], None]) -> Answer:
        parts = ChatStream()
        async with aclosing(self._client.events(body)) as chunks:
            async for chunk in chunks:
                began = parts.began
                try:
                    parts.add(chunk)
                except (TypeError, AttributeError):
                    what = f"A part of the stream is not a chat completion: {short(repr(chunk))}"
                    return no_answer(what, 1)
                if parts.began and not began:
                    heard()
        self._answered |= parts.has_ended
        self.tells_tokens |= parts.tells_tokens
        self.tells_cached |= parts.tells_cached
        reply = self._client.wire.parse(parts.body())
        if not parts.has_ended:
            return reply.usage.counted(Answer(None, Finish.ERROR, _UNENDED))
        text, finish, problem = reply.ending()
        if finish is Finish.LENGTH:  # as it was to be: the limit is a part of what is measured
            problem = None
        return reply.usage.counted(Answer(text, finish, problem))

    async def _check(self) -> None:
        """Whether a server is there that takes the key. Raises ModelError."""
        url = self._client.url
        try:
            await self._client.call("GET", "models", timeout=_CHECK_SECONDS)
        except ProviderError as error:
            if error.status == 401:
                raise _wrong_key(url, error.words) from error
            if error.kind in ("connecting", "lost"):  # others do not list their models, or are busy
                raise ModelError(
                    f"{url} cannot be reached. {error.words} Start the server, or check its "
                    "address."
                ) from error

    def _failed(self, error: ProviderError) -> Answer:
        words, url = error.words, self._client.url
        if error.kind == "late":
            words = f"Nothing was heard for {self._client.timeout:g} seconds. Raise the timeout."
        if self._answered:
            return no_answer(words, 1)
        if error.status == 401:
            raise _wrong_key(url, words) from error
        if error.status in (403, 404):
            raise ModelError(not_served(url, self.server.model, words)) from error
        if error.is_quota:
            raise ModelError(f"The account has no quota left. {words}") from error
        return no_answer(words, 1)


def _wrong_key(url: object, said: str) -> ModelError:
    return ModelError(
        f"{url} rejects the API key. {said} Give this server's key; on the command line, "
        "--api-key-env names the environment variable with the key."
    )
