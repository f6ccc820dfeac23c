"""Requests sent to a server through its provider's SDK."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import openai

from relquery.backends.wires.errors import ProviderError, sdk_error, status_error
from relquery.backends.wires.reply import Reply
from relquery.backends.wires.wire import Json, Wire
from relquery.errors import ModelError

if TYPE_CHECKING:
    from anthropic.types import ModelCapabilities

_LOG = logging.getLogger(__name__)
_RAW: Any = {"headers": {"X-Stainless-Raw-Response": "true"}}
"""An option of both SDKs: the reply as it came, as building their objects takes long."""
_ASK_SECONDS = 5.0
"""For which a model's description is waited for."""


@dataclass(frozen=True, slots=True)
class RawReply:
    """A reply as it came. headers: by their names in small letters."""

    text: str
    headers: Mapping[str, str]

    def read(self, wire: Wire) -> Reply:
        """What it says. Raises ProviderError if it is no reply of this API."""
        if (reply := wire.read(self.text)) is not None:
            return reply
        error = ProviderError.garbled(wire.what, self.text)
        try:
            body = json.loads(self.text)
            status = body["error"]["code"]
            if isinstance(status, int) and 400 <= status < 600:  # of the server behind this one
                error = status_error(status, body)
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        error.headers = self.headers
        raise error


@dataclass(slots=True)
class ProviderClient:
    """Open connections to one server. sdk: of OpenAI or Anthropic. timeout: seconds."""

    sdk: Any
    wire: Wire
    timeout: float

    @property
    def url(self) -> str:
        """The server's address."""
        return str(self.sdk.base_url)

    async def send(self, body: Json) -> RawReply:
        """Send a request once. Raises ProviderError, and ModelError without a key."""
        try:
            raw = await self.sdk.post(self.wire.path, cast_to=object, body=body, options=_RAW)
            text, headers = raw.http_response.text, raw.headers
        except ModelError:  # of what gives the key
            raise
        except Exception as error:
            raise sdk_error(error, self.timeout) from error
        return RawReply(text, {name.lower(): value for name, value in headers.items()})

    async def unsupported(self) -> set[str]:
        """Settings that the API says the model does not take, by the names that they have in chat
        completions; none if it does not tell, as OpenAI's.
        """
        if isinstance(self.sdk, openai.AsyncOpenAI):
            return set()
        try:
            asked = self.sdk.with_options(timeout=_ASK_SECONDS, max_retries=0)
            return _unsupported((await asked.models.retrieve(self.wire.model)).capabilities)
        except Exception as error:  # the first requests will tell
            _LOG.info("%s tells nothing of %s: %r", self.url, self.wire.model, error)
            return set()

    async def close(self) -> None:
        """Close the connections."""
        await self.sdk.close()


def _unsupported(capabilities: ModelCapabilities | None) -> set[str]:
    if capabilities is None or capabilities.structured_outputs.supported:
        return set()
    return {"response_format"}
