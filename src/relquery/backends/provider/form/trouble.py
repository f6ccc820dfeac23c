"""A request that brought no reply, in one form for all SDKs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from relquery.backends.provider.form.reply import short
from relquery.redaction import redacted

Kind = Literal["status", "connecting", "late", "lost", "broken", "odd"]
_PASSING_STATUS = (408, 409, 429)
_TOLD = {"true": True, "false": False}


class TroubleError(Exception):
    """Why a request has no reply.

    kind: the server said so ("status"); no connection came about; nothing came in time ("late");
        the connection was lost; the server broke off while it answered; or something else ("odd").
    words: what went wrong, as a sentence. said: all that the server said, in small letters.
    status: of HTTP; None if the server sent none. code, param: as the server names them.
    headers: by their names in small letters.
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
    ) -> None:
        words = redacted(words)  # some servers repeat the key that they refuse
        super().__init__(words)
        self.kind, self.words, self.status = kind, words, status
        self.said, self.code, self.param = said.lower(), code, param
        self.headers = headers or {}

    @property
    def is_limit(self) -> bool:
        """Whether the server has too many requests, and would take this one later."""
        return self.status == 429 and not self.is_quota

    @property
    def is_quota(self) -> bool:
        """Whether the account has nothing left to spend, which no wait mends."""
        return self.code == "insufficient_quota"

    @property
    def is_passing(self) -> bool:
        """Whether the same request may be answered if it is sent again."""
        if self.is_quota:
            return False
        told = _TOLD.get(self.headers.get("x-should-retry", ""))
        if told is not None:
            return told
        if self.status is not None:
            return self.status in _PASSING_STATUS or self.status >= 500
        return self.kind in ("connecting", "late", "lost")

    @property
    def may_be_billed(self) -> bool:
        """Whether the server may have computed an answer that did not arrive."""
        return self.kind in ("late", "lost", "broken", "odd")


def trouble_of(error: Exception, timeout: float) -> TroubleError:
    """What an SDK raised. timeout: seconds that the request had."""
    # By name: the SDKs of OpenAI and Anthropic name their errors alike, and httpx's or httpx2's
    # are their causes, by the version.
    names = {kind.__name__ for kind in type(error).__mro__}
    if "APIStatusError" in names:
        return _by_status(error)
    if "APITimeoutError" in names or "APIConnectionError" in names:
        if type(error.__cause__).__name__ in ("ConnectError", "ConnectTimeout"):
            return TroubleError("connecting", _connection_failed(error))
        if "APITimeoutError" in names:
            return TroubleError(
                "late",
                f"No answer within {timeout:g} seconds. Raise timeout, or lower max_concurrency.",
            )
        return TroubleError("lost", _connection_failed(error))
    if "APIError" in names:
        said = str(getattr(error, "message", error))
        body = getattr(error, "body", None)
        words = f"The server broke off: {short(said).rstrip('.')}."
        return TroubleError("broken", words, said=f"{said} {body}", code=_text(error, "code"))
    return TroubleError("odd", f"The request failed: {error!r}")


def _by_status(error: Exception) -> TroubleError:
    given: Any = error
    status, response = int(given.status_code), given.response
    body = given.body
    # OpenAI's SDK gives what is in "error"; Anthropic's gives the whole.
    inner = (
        body["error"] if isinstance(body, dict) and isinstance(body.get("error"), dict) else body
    )
    told = inner.get("message") or _detail(inner) or inner if isinstance(inner, dict) else inner
    text = short(str(told or response.reason_phrase)).rstrip(".")
    named = inner if isinstance(inner, dict) else {}
    code = _text(error, "code") or _str(named.get("code")) or _str(named.get("type"))
    return TroubleError(
        "status",
        f"The server answered {status}: {text}.",
        status,
        said=f"{given.message} {body}",
        code=code,
        param=_text(error, "param") or _str(named.get("param")),
        headers={name.lower(): value for name, value in response.headers.items()},
    )


def _connection_failed(error: Exception) -> str:
    cause = error.__cause__ or error
    said = str(cause).strip() or type(cause).__name__  # some say nothing but their name
    return f"The connection failed: {short(said).rstrip('.')}."


def _text(error: Exception, name: str) -> str | None:
    return _str(getattr(error, name, None))


def _str(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _detail(body: dict[str, object]) -> object:
    """What servers on FastAPI say: of a list of faults what and where, without what was sent."""
    detail = body.get("detail")
    if not isinstance(detail, list) or not all(isinstance(fault, dict) for fault in detail):
        return detail
    return "; ".join(f"{fault.get('msg')} at {fault.get('loc')}" for fault in detail)
