"""One API of providers: how requests are written, and how replies and lines of batches are read."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from relquery.backends.wires.errors import ProviderError
from relquery.backends.wires.messages import Kind, Messages, key_of
from relquery.backends.wires.reply import Reply
from relquery.prices.table import known_price
from relquery.prompt import Sampling

Json = dict[str, Any]
GARBLED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What is raised where a reply has another form than its API says."""


def encoded(body: Any) -> bytes:
    """JSON as it is sent."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Cache settings of OpenAI's APIs."""

    keys: bool = False
    """Whether requests that share a prefix have a key, by which they go to one machine."""
    marks: bool = False
    """Whether the model writes at marks, and at the end of each prompt unless it is told not to,
    as those from GPT-5.6 on: that would be written in vain, and costs more than to send it."""

    @classmethod
    def of(cls, model: str) -> CacheSettings:
        """For a model of OpenAI's, or one that a server of its form has. model: as `connect` names
        it."""
        price = known_price(model)
        return cls(keys=True, marks=price is not None and price.breakpoints > 0)

    def kind(self, name: Kind, dropped: frozenset[str]) -> Kind | None:
        """How a text with a mark is called; None if marks are not sent. name: in this API."""
        return name if self.marks and "prompt_cache_options" not in dropped else None

    def settings(self, messages: Messages, dropped: frozenset[str]) -> Json:
        """What the body of a request says."""
        said: Json = {}
        if self.keys and "prompt_cache_key" not in dropped and (key := key_of(messages)):
            said["prompt_cache_key"] = key
        if self.marks and "prompt_cache_options" not in dropped:
            said["prompt_cache_options"] = {"mode": "explicit"}
        return said


@dataclass(frozen=True, slots=True)
class BatchResult:
    """A line of a batch's results: a reply, or why there is none."""

    custom: object
    """The id of the request, as the line has it."""
    reply: Reply | None
    error: ProviderError | None = None


@dataclass(frozen=True, slots=True)
class Wire(ABC):
    """A model behind one API."""

    path: ClassVar[str]
    """Of requests, after the server's address."""
    what: ClassVar[str]
    """How a reply is called, for messages."""
    never: ClassVar[frozenset[str]] = frozenset()
    """What the API has no parameter for."""
    adjusts: ClassVar[frozenset[str]] = frozenset()
    """What of `Sampling.adjustments` it can be asked."""

    model: str
    caching: CacheSettings = CacheSettings()
    more: Mapping[str, Any] = field(default_factory=dict)
    """What the body of each request says besides."""

    @abstractmethod
    def body(self, messages: Messages, sampling: Sampling, dropped: frozenset[str]) -> Json:
        """A request. dropped: settings that the server refuses, by the names that they have in
        chat completions.
        """

    @abstractmethod
    def parse(self, body: Any) -> Reply:
        """What the JSON of a reply says. Raises one of GARBLED if it is not one of this API."""

    @abstractmethod
    def line(self, custom: str, body: Json) -> Json:
        """A request as a batch has it. custom: its id."""

    @abstractmethod
    def result(self, line: Json) -> BatchResult:
        """A line of a batch's results. Raises one of GARBLED if it is none."""

    def read(self, text: str) -> Reply | None:
        """What a reply says; None if it is not one of this API."""
        try:
            return self.parse(json.loads(text))
        except GARBLED:
            return None

    def results(self, text: str) -> list[BatchResult]:
        """The results in a file, without lines that cannot be read."""
        read = list[BatchResult]()
        for line in text.split("\n"):  # JSON may have other line ends in its texts
            try:
                read.append(self.result(json.loads(line)))
            except GARBLED:
                continue
        return read

    def _replied(self, custom: object, body: Any) -> BatchResult:
        try:
            return BatchResult(custom, self.parse(body))
        except GARBLED:
            return BatchResult(custom, None, ProviderError.garbled(self.what, json.dumps(body)))
