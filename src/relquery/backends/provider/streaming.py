"""A provider, or any server of the chat-completions form, heard token by token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import openai

from relquery.backends.provider.form.failures import not_served
from relquery.backends.provider.form.messages import to_messages
from relquery.backends.provider.form.refusals import no_temperature, refused
from relquery.backends.provider.form.reply import REASONING, Said, Usage, no_answer, short
from relquery.backends.provider.form.trouble import TroubleError, trouble_of
from relquery.backends.provider.server import Server
from relquery.backends.provider.wires.chat import chat_body
from relquery.errors import ModelError, RequestError, SamplingWarning, warn
from relquery.prompt import Answer, Finish, Prompt, Sampling

_CHECK_SECONDS = 10.0

# Where a first token may show: in the answer, or in what goes before it.
_SPOKEN = ("content", *REASONING, "refusal", "tool_calls")
_UNENDED = "No whole answer was streamed. See the server's log, and whether it can stream."


class Streaming:
    """For those who time each request: `async with Streaming(server) as streaming: ...`.

    tells_tokens, tells_cached: whether the server has told how many tokens a request had; and how
    many of a prompt's came from the cache, which it may leave out where there are none.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.tells_tokens = self.tells_cached = False
        self._answered = False

    async def __aenter__(self) -> Self:
        """Open connections. Raises ModelError if no server is there."""
        self._sdk = self.server.client()
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
        sampling, without = Sampling(max_tokens), frozenset(self.server.learnt)
        while True:
            body = chat_body(messages, sampling, without)
            if "stream_options" not in without:
                body["stream_options"] = {"include_usage": True}
            if user:
                body["user"] = user
            try:
                answer = await self._stream(
                    {"model": self.server.model, "stream": True, **body}, heard
                )
            except openai.APIError as error:
                trouble = trouble_of(error, self.server.config.timeout)
                spared = without | self.server.learnt | refused(trouble, sampling)
                if spared == without:
                    return self._failed(trouble)
                without = spared
            except Exception as error:  # the SDK's other errors, of this request alone
                return no_answer(f"The request failed: {error!r}", 1)
            else:
                self._learn(without)
                return answer

    def _learn(self, without: frozenset[str]) -> None:
        """The server has taken a request without these settings."""
        if "temperature" in without - self.server.learnt:
            warn(no_temperature(self.server.model), SamplingWarning)
        self.server.learnt.update(without)

    async def _stream(self, body: dict[str, Any], heard: Callable[[], None]) -> Answer:
        said = _Heard()
        # As plain JSON: to build the SDK's objects takes longer than what is to be measured.
        stream = await self._sdk.post(
            "/chat/completions",
            body={"model": self.server.model, "stream": True, **body},
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
                    text = f"A part of the stream is not a chat completion: {short(repr(chunk))}"
                    return no_answer(text, 1)
                if said.began and not began:
                    heard()
        self._answered |= said.finish is not None
        self.tells_tokens |= bool(said.usage)
        self.tells_cached |= said.tells_cached
        return said.answer()

    def _failed(self, trouble: TroubleError) -> Answer:
        said, url = self._words(trouble), self._sdk.base_url
        if self._answered:
            return no_answer(said, 1)
        if trouble.status == 401:
            raise _wrong_key(url, said) from trouble
        if trouble.status in (403, 404):
            raise ModelError(not_served(url, self.server.model, said)) from trouble
        if trouble.is_quota:
            raise ModelError(f"The account has no quota left. {said}") from trouble
        return no_answer(said, 1)

    def _words(self, trouble: TroubleError) -> str:
        if trouble.kind == "late":
            timeout = self.server.config.timeout
            return f"Nothing was heard for {timeout:g} seconds. Raise the timeout."
        return trouble.words


@dataclass(slots=True)
class _Heard:
    """What a stream has said so far. began: whether a token of it was heard of."""

    text: str = ""
    finish: object = None
    usage: dict[str, Any] = field(default_factory=dict)
    began: bool = False
    reasoned: bool = False

    def hear(self, chunk: Any) -> None:
        """The next part. Raises TypeError or AttributeError if it is of another form."""
        if isinstance(usage := chunk.get("usage"), dict):
            self.usage = usage
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            self.text += delta.get("content") or ""
            self.finish = choice.get("finish_reason") or self.finish
            self.reasoned |= any(delta.get(name) for name in REASONING)
            # The first part may name the role alone, before the prompt is begun.
            self.began |= bool(self.finish) or any(delta.get(name) for name in _SPOKEN)

    @property
    def tells_cached(self) -> bool:
        details = self.usage.get("prompt_tokens_details")
        return isinstance(details, dict) and details.get("cached_tokens") is not None

    def answer(self) -> Answer:
        usage = Usage.of(self.usage)
        if self.finish is None:
            return Answer(None, Finish.ERROR, _UNENDED, usage.prompt, usage.cached, usage.output)
        said = Said(self.text, self.finish, None, self.reasoned, usage)
        text, finish, problem = said.ending()
        if finish is Finish.LENGTH:  # as it was to be: the limit is a part of what is measured
            problem = None
        return Answer(text, finish, problem, usage.prompt, usage.cached, usage.output)


async def _check(client: openai.AsyncOpenAI) -> None:
    """Whether a server is there that takes the key. Raises ModelError."""
    url = client.base_url
    try:
        await client.with_options(timeout=_CHECK_SECONDS).get("/models", cast_to=object)
    except openai.AuthenticationError as error:
        said = trouble_of(error, _CHECK_SECONDS).words
        raise _wrong_key(url, said) from error
    except openai.APIStatusError:
        pass  # not all servers list their models
    except openai.APIConnectionError as error:
        if not _reached(error):
            said = trouble_of(error, _CHECK_SECONDS).words
            raise ModelError(
                f"{url} cannot be reached. {said} Start the server, or check its address."
            ) from error


def _reached(error: openai.APIConnectionError) -> bool:
    """Whether a server that took the connection was too slow, as a busy one may be."""
    late = isinstance(error, openai.APITimeoutError)
    return late and type(error.__cause__).__name__ != "ConnectTimeout"


def _wrong_key(url: object, said: str) -> ModelError:
    return ModelError(
        f"{url} rejects the API key. {said} Give this server's key; on the command line, "
        "--api-key-env names the environment variable with the key."
    )
