"""The requests of one call to a server, each sent until it has an answer or fails for good."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import openai

from relquery.backends.provider.chat import (
    is_wrapped,
    limit_of,
    says_in_words,
    to_body,
    to_messages,
)
from relquery.backends.provider.failures import (
    failure,
    reason_to_stop,
    while_connecting,
    words,
)
from relquery.backends.provider.refusals import dispensable, no_temperature, refused
from relquery.backends.provider.reply import no_answer, short, to_answer
from relquery.backends.provider.server import Server
from relquery.backends.provider.trial import Failure
from relquery.errors import ModelError, RequestError, SamplingWarning
from relquery.prompt import Answer, Prompt, Sampling

_LOG = logging.getLogger(__name__)

Outcome = tuple[Answer, Failure | None]


@dataclass(slots=True)
class Batch:
    """Requests with one sampling.

    server: what is learnt of it is added there. warn: tells the user.
    announced: see Server.announced. reached: whether the server has answered anything.
    """

    client: openai.AsyncOpenAI
    server: Server
    sampling: Sampling
    warn: Callable[[Warning], None]
    announced: Mapping[str, Any]
    reached: bool = False
    warned: bool = False

    async def ask(self, prompt: Prompt) -> Outcome:
        """An answer, or an error in its place and why. Raises ModelError where all must fail."""
        try:
            messages = to_messages(prompt)
        except RequestError as error:
            return no_answer(str(error), 0), Failure("", str(error), "prompt")
        attempts, without = 0, self._learnt_for_this
        while True:
            body = to_body(messages, self.sampling, without)
            try:
                text, tries = await self._send(body)
            except openai.APIError as error:
                attempts += 1 + int(error.request.headers.get("x-stainless-retry-count", 0))
                self.reached |= isinstance(error, openai.APIStatusError)
                spared = without | self._learnt_for_this | refused(error, self.sampling)
                if spared == without:
                    return self._failed(error, attempts)
                without = spared
            except Exception as error:  # the SDK's other errors, which no retry would mend
                said = f"The request failed: {error!r}"
                return no_answer(said, attempts + 1), Failure(type(error).__name__, said)
            else:
                self._learn(without)
                return self._read(text, attempts + tries, without)

    @property
    def _learnt_for_this(self) -> frozenset[str]:
        return frozenset(dispensable(self.server.learnt, self.sampling))

    def _learn(self, without: frozenset[str]) -> None:
        """The server has taken a request without these."""
        for setting in without - self.server.learnt:
            _LOG.info("%s answers without %s", self.server.model, setting)
        self.server.learnt.update(without)
        if "temperature" in without and self.sampling.temperature == 0 and not self.warned:
            self.warned = True
            self.warn(SamplingWarning(no_temperature(self.server.model)))

    async def _send(self, body: dict[str, Any]) -> tuple[str, int]:
        """What the server sent back, and how many tries it took. Retries are the SDK's."""
        create = self.client.chat.completions.with_raw_response.create
        if self.announced:
            body = body | {"extra_body": {**body.get("extra_body", {}), **self.announced}}
        reply = await create(model=self.server.model, **body)
        self.reached = True
        return reply.http_response.text, 1 + reply.retries_taken

    def _read(self, text: str, attempts: int, without: frozenset[str]) -> Outcome:
        stop = self.sampling.stop if "stop" in without else ()
        held = is_wrapped(self.sampling) and not says_in_words(self.sampling, without)
        limit = limit_of(self.sampling)
        answer = to_answer(text, self.sampling, attempts, limit, stop, held=held)
        if answer is not None:
            return answer, None
        said = f"The server's reply is not a chat completion: {short(text)}"
        remedy = f"{said} Check base_url ({self.client.base_url}), which usually ends in /v1."
        return no_answer(said, attempts), Failure("not a chat completion", remedy)

    def _failed(self, error: openai.APIError, attempts: int) -> Outcome:
        said, url = words(error, self.server.config.timeout), self.client.base_url
        reason = reason_to_stop(error, said, url)
        if reason is None and not self.reached and while_connecting(error):
            reason = f"{url} cannot be reached. {said} Start the server, or check base_url."
        if reason is not None:
            raise ModelError(reason) from error
        tries = f" ({attempts} attempts)" if attempts > 1 else ""
        return no_answer(said + tries, attempts), failure(error, said, url, self.server.model)
