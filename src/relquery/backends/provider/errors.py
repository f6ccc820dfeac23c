"""Failed requests read: who is to act, what to do, and which settings a server
does not take."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from relquery.backends.wires.errors import ProviderError
from relquery.backends.wires.response_format import setting_of
from relquery.errors import did_you_mean
from relquery.prices.table import all_prices
from relquery.prompt import Sampling

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

# By the words with which servers that name no parameter refuse one.
_UNKNOWN = (
    r"unrecogni[sz]ed|unknown|unexpected|unsupported|not.supported|not.permitted|extra_forbidden"
    r"|deprecated"
)
_WORDS = {
    "max_tokens": rf"\bmax_completion_tokens\b|(?s:(?=.*\bmax_tokens\b).*(?:{_UNKNOWN}))",
    "response_format": r"\bresponse_format\b|\bjson_schema\b|\boutput_config\b",
    "top_logprobs": r"\btop_logprobs\b",
    "stream_options": r"\bstream_options\b",
    "temperature": r"\btemperature\b",
    "top_p": r"\btop_p\b",
    "seed": r"\bseed\b",
    "stop": r"['\"`]stop['\"`]|\bstop_sequences\b",
    "prompt_cache_key": r"\bprompt_cache_key\b",
    "prompt_cache_options": r"\bprompt_cache_(options|breakpoint)\b",
    "neighbours": r"\balternat",  # two messages of one role in a row
}
_NAME = re.compile(r"\w+")
_SYNONYMS = {"text": "response_format", "output_config": "response_format"}
_SYNONYMS |= {"stop_sequences": "stop", "prompt_cache_breakpoint": "prompt_cache_options"}


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """The reason why a request has no answer.

    kind: the same for failures that are alike. reason: what to say where all are. whose: the
    prompt's own; the model's, of which one is enough where there are no others; the server's,
    whatever the prompt; the answer's, of which many are needed; or not to be told.
    """

    kind: str
    reason: str
    whose: Literal["prompt", "model", "server", "answer", "unknown"] = "unknown"


def failure(error: ProviderError, url: object, model: str) -> RequestFailure:
    """Whose matter an error is. url: of the server."""
    status, said = error.status, error.words
    kind = f"{status} {_OWN.sub('#', said)}"
    if status == 413 or (status in (400, 403, 422) and _OF_PROMPT.search(f"{error.code} {said}")):
        return RequestFailure(kind, said, "prompt")
    if status in (403, 404):
        return RequestFailure(kind, not_served(url, model, said), "model")
    if error.kind == "garbled":
        remedy = f"{said} Check base_url ({url}), which usually ends in /v1."
        return RequestFailure(kind.partition(":")[0], remedy)
    if error.kind == "connecting":
        return RequestFailure(kind, f"{said} Try again when the server is well.", "server")
    if status in _OF_SERVER:
        return RequestFailure(kind, f"{said} Try again when the server is well.", "server")
    return RequestFailure(kind, said + _remedy(error))


def unusable(error: str) -> RequestFailure:
    """Of an answer that came, and is none to the question: one that was cut off, for example."""
    return RequestFailure(_OWN.sub("#", error), error, "answer")


def reason_to_stop(error: ProviderError, url: object, key: str) -> str | None:
    """What is wrong with the key or the account, for which every request fails.

    key: the environment variable that holds it.
    """
    if error.status == 401:
        return f"{url} refuses the API key. {error.words} Set {key} to a key of this server."
    if error.is_quota:
        return f"The account has no quota left. {error.words}"
    return None


def not_reached(error: ProviderError, url: object) -> str:
    """Of a server that has never answered, and cannot be connected to."""
    return f"{url} cannot be reached. {error.words} Start the server, or check base_url."


def not_served(url: object, model: str, said: str) -> str:
    """Of a model that the server does not know, or not under this address."""
    return (
        f"{url} does not serve the model '{model}'. {said}{_nearest(model)} Check the model's "
        "name, whether the key may use it, and base_url, which usually ends in /v1."
    )


def _nearest(model: str) -> str:
    known = all_prices()
    return "" if model in known else did_you_mean(model, known, _ALIKE)


def _remedy(error: ProviderError) -> str:
    if error.status not in (400, 422):
        return ""
    for name in _TO_LEAVE_OUT:
        if name == error.param or (error.param is None and name in error.words):
            return f" Leave {name} out, or choose a model that takes it."
    return ""


def refused(error: ProviderError, sampling: Sampling) -> set[str]:
    """Settings that a server refuses and that a request with this sampling can do without.

    The limit then goes by its newer name, choices and schemas are said in words, answers are cut
    here at stop strings, neighbouring messages of one role are joined, the cache is left to itself,
    and what has no part in the answer is left out. So is a temperature of 0: the server then draws
    by its own, which is not the same, but the best that it offers.
    """
    if error.status not in (400, 422):
        return set()
    names = _named(error)
    if "response_format" in names:
        names = names - {"response_format"} | {setting_of(sampling)}
    return dispensable(names, sampling)


def dispensable(names: Iterable[str], sampling: Sampling) -> set[str]:
    """Those settings that a request with this sampling can do without."""
    return {name for name in names if _is_dispensable(name, sampling)}


def no_temperature(model: str) -> str:
    """What a user must know of a server that refuses temperature 0."""
    return (
        f"The server of '{model}' refuses temperature 0, so answers are drawn at its own and may "
        "differ from run to run. A ledger keeps the first answer to each prompt."
    )


def _named(error: ProviderError) -> set[str]:
    first = None if error.param is None else _NAME.match(error.param)
    if first is not None and first[0] not in ("messages", "input"):
        return {_SYNONYMS.get(first[0], first[0])} & _WORDS.keys()
    return {name for name, words in _WORDS.items() if re.search(words, error.said)}


def _is_dispensable(name: str, sampling: Sampling) -> bool:
    match name:
        case "temperature":
            return sampling.temperature in (0, 1)  # 1 is what servers take unasked
        case "top_p":
            return sampling.top_p == 1
        case "seed":
            return sampling.temperature == 0
        case "top_logprobs":
            return sampling.scored
        case "response_format":
            return bool(sampling.labels) or sampling.schema is not None
    return not name.startswith("schema ") or name == setting_of(sampling)
