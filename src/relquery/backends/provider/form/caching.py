"""What OpenAI's APIs are told of their cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relquery.backends.provider.form.messages import Kind, Messages, key_of
from relquery.prices.table import known_price


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """keys: whether requests that share a prefix have a key, by which they go to one machine.

    marks: whether the model writes at marks, and at the end of each prompt unless it is told not
    to, as those from GPT-5.6 on: that would be written in vain, and costs more than to send it.
    """

    keys: bool = False
    marks: bool = False

    @classmethod
    def of(cls, model: str) -> CacheSettings:
        """For a model of OpenAI's, or one that a server of its form has. model: as `connect` names
        it."""
        price = known_price(model)
        return cls(keys=True, marks=price is not None and price.breakpoints > 0)

    def kind(self, name: Kind, without: frozenset[str]) -> Kind | None:
        """How a text with a mark is called; None if marks are not sent. name: in this API."""
        return name if self.marks and "prompt_cache_options" not in without else None

    def settings(self, messages: Messages, without: frozenset[str]) -> dict[str, Any]:
        """What the body of a request says. without: settings that the server refuses."""
        said: dict[str, Any] = {}
        if self.keys and "prompt_cache_key" not in without and (key := key_of(messages)):
            said["prompt_cache_key"] = key
        if self.marks and "prompt_cache_options" not in without:
            said["prompt_cache_options"] = {"mode": "explicit"}
        return said


NOTHING = CacheSettings()
"""For servers that are told nothing."""
