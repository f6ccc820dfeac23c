"""What a server does not take of a request, and how the request does without it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from relquery.backends.provider.form.format import setting_of
from relquery.backends.provider.form.trouble import TroubleError
from relquery.prompt import Sampling

# By the words with which servers that name no parameter refuse one.
_WORDS = {
    "max_tokens": r"\bmax_completion_tokens\b",
    "response_format": r"\bresponse_format\b|\bjson_schema\b|\boutput_config\b",
    "top_logprobs": r"\btop_logprobs\b",
    "stream_options": r"\bstream_options\b",
    "temperature": r"\btemperature\b",
    "top_p": r"\btop_p\b",
    "seed": r"\bseed\b",
    "stop": r"['\"`]stop['\"`]|\bstop_sequences\b",
    "prompt_cache_options": r"\bprompt_cache_(?:options|breakpoint)\b",
    "neighbours": r"\balternat",  # two messages of one role in a row
}
_NAME = re.compile(r"\w+")
_SYNONYMS = {"text": "response_format", "output_config": "response_format"}
_SYNONYMS |= {"stop_sequences": "stop", "prompt_cache_breakpoint": "prompt_cache_options"}


def refused(trouble: TroubleError, sampling: Sampling) -> set[str]:
    """Settings that a server refuses and that a request with this sampling can do without.

    The limit then goes by its newer name, choices and schemas are said in words, answers are cut
    here at stop strings, neighbouring messages of one role are joined, and what has no part in the
    answer is left out. So is a temperature of 0: the server then draws by its own, which is not the
    same, but the best that it offers.
    """
    if trouble.status not in (400, 422):
        return set()
    names = _named(trouble)
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


def _named(trouble: TroubleError) -> set[str]:
    first = None if trouble.param is None else _NAME.match(trouble.param)
    if first is not None and first[0] not in ("messages", "input"):
        return {_SYNONYMS.get(first[0], first[0])} & _WORDS.keys()
    return {name for name, words in _WORDS.items() if re.search(words, trouble.said)}


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
