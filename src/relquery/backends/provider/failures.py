"""Errors of a request, read: what went wrong, whose matter it is, and what to do about it."""

from __future__ import annotations

import re

import openai

from relquery.backends.provider.reply import short
from relquery.backends.provider.trial import Failure

# Of a prompt itself, however many others fail by it too.
_OF_PROMPT = re.compile(
    r"context.?(length|window|size)|maximum.context|too.(long|many.tokens)|prompt.is.too"
    r"|content.?(filter|policy|management)|safety|moderation|flagged|usage.polic|invalid_prompt",
    re.IGNORECASE,
)
_OF_SERVER = (429, 502, 503)
_TO_LEAVE_OUT = ("temperature", "top_p", "top_k", "seed", "stop")
# What differs between failures that are alike: ids, rows, moments; texts that are quoted.
_OWN = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|[\w-]*\d[\w-]*")


def words(error: openai.APIError, timeout: float) -> str:
    """What went wrong, in the server's words where it has some."""
    if isinstance(error, openai.APIStatusError):
        body = error.body
        said = body.get("message") or _detail(body) or body if isinstance(body, dict) else body
        text = short(str(said or error.response.reason_phrase)).rstrip(".")
        return f"The server answered {error.status_code}: {text}."
    if isinstance(error, openai.APITimeoutError) and not while_connecting(error):
        return f"No answer within {timeout:g} seconds. Raise timeout, or lower max_concurrency."
    if isinstance(error, openai.APIConnectionError):
        return f"The connection failed: {short(str(error.__cause__ or error)).rstrip('.')}."
    return f"The server broke off: {short(error.message).rstrip('.')}."


def failure(error: openai.APIError, said: str, url: object, model: str) -> Failure:
    """Whose matter an error is. said: its words."""
    status = getattr(error, "status_code", None)
    kind = f"{status} {_OWN.sub('#', said)}"
    if status == 413 or (status in (400, 403, 422) and _OF_PROMPT.search(f"{error.code} {said}")):
        return Failure(kind, said, "prompt")
    if status in (403, 404):
        return Failure(kind, not_served(url, model, said), "model")
    if status in _OF_SERVER or while_connecting(error):
        return Failure(kind, f"{said} Try again when the server is well.", "server")
    return Failure(kind, said + _remedy(error, said))


def reason_to_stop(error: openai.APIError, said: str, url: object) -> str | None:
    """What is wrong with the key or the account, for which every request fails."""
    if isinstance(error, openai.AuthenticationError):
        return f"{url} refuses the API key. {said} Set OPENAI_API_KEY to a key of this server."
    if error.code == "insufficient_quota":
        return f"The account has no quota left. {said}"
    return None


def not_served(url: object, model: str, said: str) -> str:
    """Of a model that the server does not know, or not under this address."""
    return (
        f"{url} does not serve the model '{model}'. {said} Check the model's name, whether the "
        "key may use it, and base_url, which usually ends in /v1."
    )


def while_connecting(error: openai.APIError) -> bool:
    """Whether no connection came about."""
    # By name: the classes are httpx's or httpx2's, by the version of the SDK.
    return type(error.__cause__).__name__ in ("ConnectError", "ConnectTimeout")


def _detail(body: dict[str, object]) -> object:
    """What servers on FastAPI say: of a list of faults what and where, without what was sent."""
    detail = body.get("detail")
    if not isinstance(detail, list) or not all(isinstance(fault, dict) for fault in detail):
        return detail
    return "; ".join(f"{fault.get('msg')} at {fault.get('loc')}" for fault in detail)


def _remedy(error: openai.APIError, said: str) -> str:
    if not isinstance(error, (openai.BadRequestError, openai.UnprocessableEntityError)):
        return ""
    for name in _TO_LEAVE_OUT:
        if name == error.param or (error.param is None and name in said):
            return f" Leave {name} out, or choose a model that takes it."
    return ""
