"""The fields of a request that a user may set, by the names that the provider's API takes.

Checked, as a misspelt name would only be refused when the batch is processed, or silently ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relquery.errors import ConfigError, did_you_mean, type_of

Options = Mapping[str, Any]

EXTRA = "extra_body"
"""The option with fields that are not listed here."""

OWN = frozenset(
    {
        "model", "messages", "system", "max_tokens", "max_completion_tokens", "stream",
        "stream_options", "n",
    }
)  # fmt: skip
"""Fields that are set from the prompts and the settings of a batch, in either form."""

CHAT_COMPLETIONS = frozenset(
    {
        "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
        "metadata", "modalities", "moderation", "parallel_tool_calls", "prediction",
        "presence_penalty", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
        "reasoning_effort", "response_format", "safety_identifier", "seed", "service_tier", "stop",
        "store", "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user",
        "verbosity", "web_search_options",
    }
)  # fmt: skip
"""Of OpenAI's chat completions, as of November 2026."""

MESSAGES = frozenset(
    {
        "cache_control", "container", "diagnostics", "inference_geo", "metadata", "output_config",
        "service_tier", "speed", "stop_sequences", "temperature", "thinking", "tool_choice",
        "tools", "top_k", "top_p",
    }
)  # fmt: skip
"""Of Anthropic's Messages, as of November 2026.

Its SDK has no temperature, top_k and top_p any more, but models that support sampling take them.
"""

_ARGUMENTS = ("model", "max_tokens", "price", "rows", "waves", "ttl", EXTRA)


def fields_of(options: Options, known: frozenset[str], api: str) -> dict[str, Any]:
    """The fields to add to each request. known: names that the API takes. Raises ConfigError."""
    given = dict(options)
    extra = given.pop(EXTRA, {})
    if not isinstance(extra, Mapping):
        raise ConfigError(
            f"{EXTRA} is {type_of(extra)}; it must be a dict of request fields, such as "
            "{'top_k': 5}."
        )
    for name in (*given, *extra):
        if name in OWN:
            raise ConfigError(
                f"{name} cannot be an option of a request: it is set from the prompts, or by "
                "model= and max_tokens=, and each row has one answer."
            )
    for name in given:
        if name not in known:
            raise ConfigError(_strange(name, known, api))
    return {**given, **extra}


def _strange(name: str, known: frozenset[str], api: str) -> str:
    hint = did_you_mean(name, [*_ARGUMENTS, *sorted(known)])
    return (
        f"{name!r} is neither an argument of write_batch nor a field of {api}.{hint} To send a "
        f"field that relquery does not know, give {EXTRA}={{{name!r}: ...}}."
    )
