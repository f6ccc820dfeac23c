"""What an API of a provider is to those who send requests through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from relquery.backends.provider.form.messages import Messages
from relquery.backends.provider.form.reply import Said
from relquery.prompt import Sampling


@dataclass(frozen=True, slots=True)
class Sent:
    """A reply as it came. headers: by their names in small letters."""

    text: str
    headers: Mapping[str, str]


class Wire(Protocol):
    """One API of one server, with open connections.

    url: of the server. what: a reply of this API is called, for messages.
    """

    @property
    def url(self) -> str: ...

    @property
    def what(self) -> str: ...

    def body(
        self, messages: Messages, sampling: Sampling, without: frozenset[str]
    ) -> dict[str, Any]:
        """A request without the model. without: settings that the server refuses, by the names
        that they have in chat completions.
        """
        ...

    async def send(self, body: dict[str, Any]) -> Sent:
        """Send a request once. Raises TroubleError."""
        ...

    def read(self, text: str) -> Said | None:
        """What a reply says; None if it is not one of this API."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def headers_of(headers: Mapping[str, str]) -> dict[str, str]:
    """By their names in small letters."""
    return {name.lower(): value for name, value in headers.items()}
