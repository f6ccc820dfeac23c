"""Prompts as requests of one sampling, and replies as their answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relquery.backends.provider.client import ProviderClient
from relquery.backends.provider.errors import (
    RequestFailure,
    dispensable,
    failure,
    no_temperature,
    not_reached,
    reason_to_stop,
    refused,
    unusable,
)
from relquery.backends.provider.server import ProviderServer
from relquery.backends.wires.errors import ProviderError
from relquery.backends.wires.messages import Messages
from relquery.backends.wires.reply import Reply, no_answer, to_answer
from relquery.backends.wires.response_format import (
    TOLD,
    as_sent,
    is_wrapped,
    limit_of,
    says_in_words,
)
from relquery.errors import ModelError, SamplingWarning
from relquery.prompt import Answer, Sampling

_LOG = logging.getLogger(__name__)

Outcome = tuple[Answer, RequestFailure | None]
Dropped = frozenset[str]
_FREE, _OF_ALL = 2, 4
"""So many answers may be no labels, and one in so many of all, before requests hold the model to
the labels. Both ways then take about as many tokens."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reply as read. off_label: whether it is none of the labels that the prompt alone told: then
    it is asked again.
    """

    answer: Answer
    failure: RequestFailure | None
    off_label: bool = False


@dataclass(slots=True)
class RequestCodec:
    """Requests with one sampling to one server.

    server: what is learnt of it is added there. warn: tells the user. reached: whether the server
    has answered anything.
    """

    client: ProviderClient
    server: ProviderServer
    sampling: Sampling
    warn: Callable[[Warning], None]
    reached: bool = False
    warned: bool = False

    @property
    def limit(self) -> int:
        """Tokens that an answer may have."""
        return limit_of(self.sampling)

    @property
    def dropped(self) -> Dropped:
        """Settings that requests do without, as far as is known."""
        spared = dispensable(self.server.dropped, self.sampling)
        return frozenset(spared if self._follows() else {*spared, TOLD})

    def body(self, messages: Messages, dropped: Dropped) -> dict[str, Any]:
        """A request."""
        body = self.client.wire.body(messages, as_sent(self.sampling, dropped), dropped)
        if (tier := self.server.config.service_tier) is not None:
            body["service_tier"] = tier
        return body

    @property
    def is_known(self) -> bool:
        """Whether the server takes such requests, as far as can be told."""
        return self.server.facts is not None or self.sampling in self.server.useful

    def learn(self, dropped: Dropped) -> None:
        """The server has taken a request without these."""
        for setting in dropped - self.server.dropped - {TOLD}:
            _LOG.info("%s answers without %s", self.server.model, setting)
        self.server.dropped.update(dropped - {TOLD})
        if "temperature" in dropped and self.sampling.temperature == 0 and not self.warned:
            self.warned = True
            self.warn(SamplingWarning(no_temperature(self.server.model)))

    def spared(self, error: ProviderError, dropped: Dropped) -> Dropped:
        """What the next request does without, which is no more if nothing can be spared.

        A refusal that fits what is known of a model of this name shows that it is that model.
        """
        named, newly = self.server.named, refused(error, self.sampling)
        if named is not None and newly and newly <= named.without:
            newly |= dispensable(named.without, self.sampling)
        return dropped | self.dropped | newly

    def read(self, reply: Reply, calls: int, dropped: Dropped) -> Reading:
        """The answer in a reply."""
        answer = to_answer(
            reply,
            self.sampling,
            calls,
            self.limit,
            self.sampling.stop if "stop" in dropped else (),
            held=is_wrapped(self.sampling) and not says_in_words(self.sampling, dropped),
            may_be_empty=self.server.config.allow_empty,
        )
        if reply.is_refused:
            reason = f"{answer.error} Change the prompt, or ask another model."
            return Reading(answer, RequestFailure("refused", reason, "answer"))
        off_label = self._is_off_label(answer, dropped)
        return Reading(answer, self._unusable(answer), off_label)

    def failed(self, error: ProviderError, calls: int) -> Outcome:
        """An error in place of an answer, and why."""
        tries = f" ({calls} attempts)" if calls > 1 else ""
        return no_answer(error.words + tries, calls), self.failure(error)

    def failure(self, error: ProviderError) -> RequestFailure:
        """Whose matter an error is."""
        url = self.client.url
        if not self.reached and error.kind == "connecting":
            return RequestFailure("connecting", not_reached(error, url), "server")
        return failure(error, url, self.server.model)

    def check(self, error: ProviderError, *, is_last: bool) -> None:
        """Raises ModelError for what no other request would mend, if this was the last try."""
        reason = reason_to_stop(error, self.client.url, self.server.provider.key)
        if reason is None and is_last and not self.reached and error.kind == "connecting":
            reason = not_reached(error, self.client.url)
        if reason is not None:
            raise ModelError(reason) from error

    def _follows(self) -> bool:
        """Whether labels come if the prompt alone tells them: most often, as far as is known."""
        followed, strayed = self.server.told_labels.get(self.sampling, (0, 0))
        return strayed < _FREE + (followed + strayed) // _OF_ALL

    def _is_off_label(self, answer: Answer, dropped: Dropped) -> bool:
        if not self.sampling.told or TOLD in dropped:
            return False
        followed, strayed = self.server.told_labels.get(self.sampling, (0, 0))
        is_label = answer.error is None
        self.server.told_labels[self.sampling] = followed + is_label, strayed + (not is_label)
        return not is_label

    def _unusable(self, answer: Answer) -> RequestFailure | None:
        """Why an answer is of no use; None where others to such calls were: then it is the
        prompt's matter."""
        useful = self.server.useful
        if answer.error is None:
            useful.add(self.sampling)
        return None if answer.error is None or self.sampling in useful else unusable(answer.error)
