"""Prompts as requests of one sampling, and replies as their answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relquery.backends.provider.form.failures import (
    Failure,
    failure,
    not_reached,
    reason_to_stop,
    unusable,
)
from relquery.backends.provider.form.format import (
    TOLD,
    as_sent,
    is_wrapped,
    limit_of,
    says_in_words,
    setting_of,
)
from relquery.backends.provider.form.messages import Messages
from relquery.backends.provider.form.refusals import dispensable, no_temperature, refused
from relquery.backends.provider.form.reply import Usage, no_answer, short, to_answer
from relquery.backends.provider.form.trouble import TroubleError
from relquery.backends.provider.sending.needs import OF_FORM
from relquery.backends.provider.server import Server
from relquery.backends.provider.wires.wire import Wire
from relquery.errors import ModelError, SamplingWarning
from relquery.prompt import Answer, Sampling

_LOG = logging.getLogger(__name__)

Outcome = tuple[Answer, Failure | None]
Without = frozenset[str]
_FREE, _OF_ALL = 2, 4
"""So many answers may be no labels, and one in so many of all, before requests hold the model to
the labels. Both ways then take about as many tokens."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reply as read. usage: None if it is not known.

    strays: whether it is none of the labels that the prompt alone told: then it is asked again.
    """

    answer: Answer
    failure: Failure | None
    usage: Usage | None
    strays: bool = False


@dataclass(slots=True)
class Asking:
    """Requests with one sampling to one server.

    server: what is learnt of it is added there. warn: tells the user. reached: whether the server
    has answered anything.
    """

    wire: Wire
    server: Server
    sampling: Sampling
    warn: Callable[[Warning], None]
    reached: bool = False
    warned: bool = False

    @property
    def limit(self) -> int:
        """Tokens that an answer may have."""
        return limit_of(self.sampling)

    @property
    def without(self) -> Without:
        """Settings that requests do without, as far as is known."""
        found = dispensable(self.server.learnt, self.sampling)
        return frozenset(found if self._follows() else {*found, TOLD})

    def body(self, messages: Messages, without: Without) -> dict[str, Any]:
        """A request without the model."""
        body = self.wire.body(messages, as_sent(self.sampling, without), without)
        if (tier := self.server.config.service_tier) is not None:
            body["service_tier"] = tier
        return body

    def is_known(self, body: dict[str, Any]) -> bool:
        """Whether the server takes such requests, as far as can be told."""
        return self.server.facts is not None or self._settings(body) <= self.server.taken

    def note(self, body: dict[str, Any]) -> None:
        """The server has read such a request, and refuses none of its settings."""
        self.server.taken.update(self._settings(body))

    def learn(self, without: Without) -> None:
        """The server has taken a request without these."""
        for setting in without - self.server.learnt - {TOLD}:
            _LOG.info("%s answers without %s", self.server.model, setting)
        self.server.learnt.update(without - {TOLD})
        if "temperature" in without and self.sampling.temperature == 0 and not self.warned:
            self.warned = True
            self.warn(SamplingWarning(no_temperature(self.server.model)))

    def spared(self, trouble: TroubleError, without: Without) -> Without:
        """What the next request does without, which is no more if nothing can be spared.

        A refusal that fits what is known of a model of this name shows that it is that model.
        """
        named, found = self.server.named, refused(trouble, self.sampling)
        if named is not None and found and found <= named.without:
            found |= dispensable(named.without, self.sampling)
        return without | self.without | found

    def read(self, text: str, calls: int, without: Without) -> Reading:
        """The answer in a reply."""
        said = self.wire.read(text)
        if said is None:
            got = f"The server's reply is not {self.wire.what}: {short(text)}"
            remedy = f"{got} Check base_url ({self.wire.url}), which usually ends in /v1."
            return Reading(no_answer(got, calls), Failure(f"not {self.wire.what}", remedy), None)
        stop = self.sampling.stop if "stop" in without else ()
        held = is_wrapped(self.sampling) and not says_in_words(self.sampling, without)
        answer = to_answer(said, self.sampling, calls, self.limit, stop, held=held)
        if said.is_refused:
            reason = f"{answer.error} Change the prompt, or ask another model."
            return Reading(answer, Failure("refused", reason, "answer"), said.usage)
        strays = self._strays(answer, without)
        return Reading(answer, self._unusable(answer), said.usage, strays)

    def failed(self, trouble: TroubleError, calls: int) -> Outcome:
        """An error in place of an answer, and why. Raises ModelError where all must fail."""
        tries = f" ({calls} attempts)" if calls > 1 else ""
        return no_answer(trouble.words + tries, calls), self.why(trouble)

    def why(self, trouble: TroubleError) -> Failure:
        """Whose matter trouble is."""
        if not self.reached and trouble.kind == "connecting":
            return Failure("connecting", not_reached(trouble, self.wire.url), "server")
        return failure(trouble, self.wire.url, self.server.model)

    def check(self, trouble: TroubleError, *, is_last: bool) -> None:
        """Raises ModelError for what no other request would mend, if this was the last try."""
        reason = reason_to_stop(trouble, self.wire.url, self.server.provider.key)
        if reason is None and is_last and not self.reached and trouble.kind == "connecting":
            reason = not_reached(trouble, self.wire.url)
        if reason is not None:
            raise ModelError(reason) from trouble

    def _follows(self) -> bool:
        """Whether labels come if the prompt alone tells them: most often, as far as is known."""
        followed, strayed = self.server.told_labels.get(self.sampling, (0, 0))
        return strayed < _FREE + (followed + strayed) // _OF_ALL

    def _strays(self, answer: Answer, without: Without) -> bool:
        if not self.sampling.told or TOLD in without:
            return False
        followed, strayed = self.server.told_labels.get(self.sampling, (0, 0))
        is_label = answer.error is None
        self.server.told_labels[self.sampling] = followed + is_label, strayed + (not is_label)
        return not is_label

    def _unusable(self, answer: Answer) -> Failure | None:
        """Why an answer is of no use; None where others to such calls were: then it is the
        prompt's matter."""
        useful = self.server.useful
        if answer.error is None:
            useful.add(self.sampling)
        return None if answer.error is None or self.sampling in useful else unusable(answer.error)

    def _settings(self, body: dict[str, Any]) -> set[str]:
        if self.sampling.told and not body.keys() & OF_FORM:
            return set(body)
        return {*body, setting_of(self.sampling)}
