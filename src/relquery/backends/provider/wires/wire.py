"""What an API of a provider is to those who send requests through it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from relquery.backends.provider.form.messages import Messages
from relquery.backends.provider.form.reply import Said
from relquery.backends.provider.form.trouble import trouble_of
from relquery.errors import ModelError
from relquery.prompt import Sampling

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI


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
        """Send a request once. Raises TroubleError, and ModelError without a key."""
        ...

    def read(self, text: str) -> Said | None:
        """What a reply says; None if it is not one of this API."""
        ...

    async def does_without(self) -> set[str]:
        """Settings that the API says the model does not take; none if it does not tell."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(slots=True)
class SdkWire(ABC):
    """What all wires over a provider's SDK have in common; see Wire. timeout: seconds."""

    what: ClassVar[str]
    client: AsyncOpenAI | AsyncAnthropic
    model: str
    timeout: float

    @property
    def url(self) -> str:
        """See Wire."""
        return str(self.client.base_url)

    async def send(self, body: dict[str, Any]) -> Sent:
        """See Wire."""
        try:
            text, headers = await self._post(body)
        except ModelError:  # of what gives the key
            raise
        except Exception as error:
            raise trouble_of(error, self.timeout) from error
        return Sent(text, {name.lower(): value for name, value in headers.items()})

    @abstractmethod
    async def _post(self, body: dict[str, Any]) -> tuple[str, Mapping[str, str]]:
        """The text of a reply, and its headers. Raises what the SDK raises."""

    async def does_without(self) -> set[str]:
        """See Wire: OpenAI's API tells nothing of a model but its name."""
        return set()

    async def close(self) -> None:
        """See Wire."""
        await self.client.close()
