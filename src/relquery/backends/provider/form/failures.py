"""Whose matter a failed request is, and what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from relquery.backends.provider.form.trouble import TroubleError
from relquery.errors import did_you_mean
from relquery.prices.table import all_prices

# Of a prompt itself, however many others fail by it too.
_OF_PROMPT = re.compile(
    r"context.?(length|window|size)|maximum.context|too.(long|many.tokens)|prompt.is.too"
    r"|content.?(filter|policy|management)|safety|moderation|flagged|usage.polic|invalid_prompt",
    re.IGNORECASE,
)
_ALIKE = 0.75  # of names of models: others differ in more than a slip
_OF_SERVER = (429, 502, 503, 529)
_TO_LEAVE_OUT = ("temperature", "top_p", "top_k", "seed", "stop")
# What differs between failures that are alike: ids, rows, moments; texts that are quoted.
_OWN = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|[\w-]*\d[\w-]*")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request has no answer.

    kind: the same for failures that are alike. reason: what to say where all are. whose: the
    prompt's own; the model's, of which one is enough where there are no others; the server's,
    whatever the prompt; the answer's, of which many are needed; or not to be told.
    """

    kind: str
    reason: str
    whose: Literal["prompt", "model", "server", "answer", "unknown"] = "unknown"


def failure(trouble: TroubleError, url: object, model: str) -> Failure:
    """Whose matter trouble is. url: of the server."""
    status, said = trouble.status, trouble.words
    kind = f"{status} {_OWN.sub('#', said)}"
    if status == 413 or (status in (400, 403, 422) and _OF_PROMPT.search(f"{trouble.code} {said}")):
        return Failure(kind, said, "prompt")
    if status in (403, 404):
        return Failure(kind, not_served(url, model, said), "model")
    if trouble.kind == "connecting":
        return Failure(kind, f"{said} Try again when the server is well.", "server")
    if status in _OF_SERVER:
        return Failure(kind, f"{said} Try again when the server is well.", "server")
    return Failure(kind, said + _remedy(trouble))


def unusable(error: str) -> Failure:
    """Of an answer that came, and is none to the question: one that was cut off, for example."""
    return Failure(_OWN.sub("#", error), error, "answer")


def reason_to_stop(trouble: TroubleError, url: object, key: str) -> str | None:
    """What is wrong with the key or the account, for which every request fails.

    key: the environment variable that holds it.
    """
    if trouble.status == 401:
        return f"{url} refuses the API key. {trouble.words} Set {key} to a key of this server."
    if trouble.is_quota:
        return f"The account has no quota left. {trouble.words}"
    return None


def not_reached(trouble: TroubleError, url: object) -> str:
    """Of a server that has never answered, and cannot be connected to."""
    return f"{url} cannot be reached. {trouble.words} Start the server, or check base_url."


def not_served(url: object, model: str, said: str) -> str:
    """Of a model that the server does not know, or not under this address."""
    return (
        f"{url} does not serve the model '{model}'. {said}{_nearest(model)} Check the model's "
        "name, whether the key may use it, and base_url, which usually ends in /v1."
    )


def _nearest(model: str) -> str:
    known = all_prices()
    return "" if model in known else did_you_mean(model, known, _ALIKE)


def _remedy(trouble: TroubleError) -> str:
    if trouble.status not in (400, 422):
        return ""
    for name in _TO_LEAVE_OUT:
        if name == trouble.param or (trouble.param is None and name in trouble.words):
            return f" Leave {name} out, or choose a model that takes it."
    return ""
