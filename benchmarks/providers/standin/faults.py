"""Faults on purpose: of which requests, of which kind, and how often each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, get_args

from benchmarks.providers.standin.prompt import Sent

Kind = Literal["429", "500", "503", "hang", "reset", "cut", "garbage", "refusal", "wrong types"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""429, 500, 503: the status. hang: no reply. reset: the connection is reset. cut: the reply ends in
the middle. garbage: 200 with something that is not JSON. refusal: the model declines. wrong types:
JSON whose fields have other types than documented."""


@dataclass(slots=True)
class Faults:
    """The requests whose prompts hash below `share` fail, the first `times` times that they come.

    times: None for always. given: how many faults there were.
    """

    kind: Kind | None = None
    share: float = 1.0
    times: int | None = None
    given: int = 0
    _seen: Counter[int] = field(default_factory=Counter)

    def of(self, sent: Sent) -> Kind | None:
        """The fault that a request gets, counted as given."""
        digest = sent.digest
        if self.kind is None or digest >= self.share * 2**64:
            return None
        self._seen[digest] += 1
        if self.times is not None and self._seen[digest] > self.times:
            return None
        self.given += 1
        return self.kind
