"""Errors of providers, in one form for all APIs and for lines of batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from relquery.backends.wires.rate_limits import retry_after, utc, wait_in_body
from relquery.redaction import redacted

Kind = Literal["status", "connecting", "late", "lost", "broken", "garbled", "odd"]
_PASSING_STATUS = (408, 409, 429)
_SHOULD_RETRY = {"true": True, "false": False}
_MOST_SHOWN = 300


class ProviderError(Exception):
    """The reason why a request has no reply.

    kind: the server said so ("status"); no connection came about; nothing came in time ("late");
        the connection was lost; the server broke off while it answered; what came is no reply
        ("garbled"); or something else ("odd").
    words: what went wrong, as a sentence. said: all that the server said, in small letters.
    status: of HTTP; None if the server sent none. code, param: as the server names them.
    headers: by their names in small letters. body: of the reply, where it was JSON.
    """

    def __init__(
        self,
        kind: Kind,
        words: str,
        status: int | None = None,
        *,
        said: str = "",
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: object = None,
    ) -> None:
        words = redacted(words)  # some servers repeat the key that they refuse
        super().__init__(words)
        self.kind, self.words, self.status = kind, words, status
        self.said, self.code, self.param = said.lower(), code, param
        self.headers, self.body = headers or {}, body

    @classmethod
    def garbled(cls, what: str, text: str) -> Self:
        """Of a reply that is none. what: it should be, e.g. "a chat completion"."""
        return cls("garbled", f"The server's reply is not {what}: {short(text)}")

    @classmethod
    def expired(cls) -> Self:
        """Of a request in a batch that ended before it was answered."""
        return cls("late", "The request expired before it was answered.")

    @property
    def wait(self) -> float | None:
        """Seconds that the server asks to wait before the next try; None if it does not tell."""
        told = retry_after(self.headers, utc())
        return wait_in_body(self.body) if told is None else told

    @property
    def is_limit(self) -> bool:
        """Whether the server has too many requests, and would take this one later."""
        return self.status == 429 and not self.is_quota

    @property
    def is_quota(self) -> bool:
        """Whether the account has nothing left to spend, which no wait mends."""
        return (
            self.status == 402
            or self.code == "insufficient_quota"
            or "credit balance is too low" in self.said  # Anthropic's, a 400
        )

    @property
    def is_passing(self) -> bool:
        """Whether the same request may be answered if it is sent again."""
        if self.is_quota:
            return False
        told = _SHOULD_RETRY.get(self.headers.get("x-should-retry", ""))
        if told is not None:
            return told
        if self.status is not None:
            return self.status in _PASSING_STATUS or self.status >= 500
        return self.kind in ("connecting", "late", "lost", "garbled")

    @property
    def is_refusal(self) -> bool:
        """Whether the server has read the request and will not answer it."""
        return self.status is not None and not self.is_passing

    @property
    def may_be_billed(self) -> bool:
        """Whether the server may have computed an answer that did not arrive."""
        return self.kind in ("late", "lost", "broken", "garbled", "odd")


def status_error(
    status: int | None,
    body: Any,
    headers: Mapping[str, str] | None = None,
    reason: str = "",
    *,
    is_broken: bool = False,
) -> ProviderError:
    """What a server answered in place of a reply.

    status: None if there is none. body: JSON, or the text that came. reason: to show if the body
    gives none. is_broken: whether it comes in the midst of a reply.
    """
    inner = body
    while isinstance(inner, list) and len(inner) == 1:  # Google's
        inner = inner[0]
    while isinstance(inner, dict) and isinstance(inner.get("error"), dict):
        inner = inner["error"]
    named = inner if isinstance(inner, dict) else {}
    told = named.get("message") or named.get("error") or _detail(named) or inner
    kind: Kind = "broken" if is_broken else "odd" if status is None else "status"
    what = "The server broke off" if is_broken else "The request failed"
    what = what if status is None else f"The server answered {status}"
    text = short(str(told or reason or "no reason given")).rstrip(".")
    return ProviderError(
        kind,
        f"{what}: {text}.",
        status,
        said=str(body),
        code=_str(named.get("code")) or _str(named.get("type")),
        param=_str(named.get("param")),
        headers=headers,
        body=body,
    )


def short(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def _str(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _detail(body: dict[str, Any]) -> object:
    """What servers on FastAPI say: of a list of faults what and where, without what was sent."""
    detail = body.get("detail")
    if not isinstance(detail, list) or not all(isinstance(fault, dict) for fault in detail):
        return detail
    return "; ".join(f"{fault.get('msg')} at {fault.get('loc')}" for fault in detail)
