"""Requests in the form of a provider's batch API: a JSON object per line.

Limits: OpenAI's Batch API takes files of 50,000 requests and 200 MB, Anthropic's Message Batches
100,000 requests and 256 MB.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from relquery.backends.wires.anthropic import AnthropicMessages
from relquery.backends.wires.messages import Mark, Messages, WireMessage
from relquery.backends.wires.openai import OpenAIChat
from relquery.backends.wires.wire import CacheSettings, Json, Wire
from relquery.errors import ConfigError, did_you_mean, type_of, unknown
from relquery.prices.price import Price
from relquery.prices.table import all_prices
from relquery.prompt import Sampling
from relquery.reordering.prompts.prompts import RowPrompt

FormName = Literal["openai", "anthropic"]
Options = Mapping[str, Any]

MB = 1_000_000
TTLS = ("5m", "1h")
_SECONDS = {"5m": 300.0, "1h": 3600.0}
_DROPPED = frozenset({"temperature", "max_tokens"})
"""What requests say by other names, or not at all."""
_AROUND = 64  # bytes that a list of requests takes besides its lines
_CLAUDE = "claude"

# The fields of a request that a user may set, by the names that the provider's API takes. Checked,
# as a misspelt name would only be refused when the batch is processed, or silently ignored.

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


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """The settings that all requests of a batch share.

    options: further fields of each request, such as temperature. ttl: how long Anthropic keeps
    the prefixes that a request marks. explicit: whether requests say which prefixes to cache.
    """

    model: str
    max_tokens: int
    options: Options
    ttl: str
    explicit: bool

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model:
            raise ConfigError(
                f"model is {self.model!r}; it must be the model's name at the provider, as text."
            )
        if not isinstance(self.max_tokens, int) or self.max_tokens < 1:
            raise ConfigError(f"max_tokens is {self.max_tokens!r}; it must be 1 or more.")
        if self.ttl not in TTLS:
            raise ConfigError(unknown("ttl", self.ttl, TTLS))
        try:
            json.dumps([self.model, self.options], allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"The options {dict(self.options)!r} cannot be written as JSON: {error}. Give "
                "numbers, text, lists and dicts."
            ) from error


@dataclass(frozen=True, slots=True)
class Form:
    """A provider's form. requests, size: the most requests and bytes of one file.

    wire: writes requests. api: what a request is called. fields: those that a user may set.
    """

    name: FormName
    requests: int
    size: int
    wire: type[Wire]
    api: str
    fields: frozenset[str]

    def writer(self, settings: BatchSettings) -> Callable[[RowPrompt, str], Json]:
        """What makes a line of a file of a prompt and the id of its request."""
        caching = CacheSettings(marks=settings.explicit)
        wire = self.wire(settings.model, caching, settings.options)
        sampling, seconds = Sampling(settings.max_tokens), _SECONDS[settings.ttl]

        def write(prompt: RowPrompt, custom_id: str) -> Json:
            body = wire.body(row_messages(prompt, seconds), sampling, _DROPPED)
            return wire.line(custom_id, body)

        return write


def find_form(name: object) -> Form:
    """The form of this name. Raises ConfigError."""
    if not isinstance(name, str) or name not in FORMS:
        raise ConfigError(
            f"form is {name!r}; it must be 'openai' (OpenAI's Batch API) or 'anthropic' "
            f"(Anthropic's Message Batches).{did_you_mean(str(name), _PROVIDERS)}"
        )
    return FORMS[name]


def settings_of(
    form: Form,
    price: Price | None,
    model: str | None,
    max_tokens: int,
    ttl: str,
    options: Options,
) -> tuple[Price | None, BatchSettings]:
    """(the price that decides which prefixes are marked, the settings). Raises ConfigError.

    model: None for the name of the price.
    """
    if model is None:
        if price is None:
            raise ConfigError(
                "No model is given. Give model=, its name at the provider, such as "
                "model='gpt-5.4-mini'."
            )
        model = price.name
    marked = price is not None and price.breakpoints > 0
    fields = _fields_of(options, form.fields, form.api)
    settings = BatchSettings(model, max_tokens, fields, ttl, explicit=marked)
    _check_price(form, price)
    if ttl == TTLS[0]:
        return price, settings
    if form.name != "anthropic":
        raise ConfigError(f"ttl is {ttl!r}, but it only matters with form='anthropic'.")
    if price is None or not marked:
        raise ConfigError(
            f"ttl is {ttl!r}, but no prefix is marked, because no price of {model!r} with "
            "breakpoints is known. Give price=, an rq.Price or the name of one."
        )
    return price.for_an_hour, settings


def _fields_of(options: Options, known: frozenset[str], api: str) -> dict[str, Any]:
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


def _check_price(form: Form, price: Price | None) -> None:
    if price is None or not price.breakpoints or price.name not in all_prices():
        return
    if price.name.startswith(_CLAUDE) != (form.name == "anthropic"):
        other = "openai" if form.name == "anthropic" else "anthropic"
        raise ConfigError(
            f"form is {form.name!r}, which cannot mark prefixes for the price {price.name!r}. Give "
            f"form={other!r}, or the price of your model as price=."
        )


def row_messages(prompt: RowPrompt, seconds: float) -> Messages:
    """A prompt as messages. seconds: for which its prefixes are kept.

    Up to the last breakpoint each part stands apart, so that prompts that share a prefix share its
    parts, whatever else they mark. The rest is one. A breakpoint behind blank text alone is one
    behind the system text.
    """
    text, breakpoints = prompt.text, prompt.breakpoints
    last = max(breakpoints, default=0)
    ends = [*accumulate(map(len, prompt.parts[:last]))]
    marks: list[Mark] = [
        (end, seconds if index in breakpoints else None) for index, end in enumerate(ends, start=1)
    ]
    if last > len(prompt.columns) and not text[ends[-1] :].strip():
        marks[-1] = len(text), seconds  # the rest is what all of them end with
    user: WireMessage = {"role": "user", "content": text}
    if marks:
        user["marks"] = marks
    if not prompt.system:
        return [user]
    system: WireMessage = {"role": "system", "content": prompt.system}
    if any(kept and not text[:end].strip() for end, kept in marks):
        system["marks"] = [(len(prompt.system), seconds)]
    return [system, user]


FORMS: dict[str, Form] = {
    "openai": Form(
        "openai", 50_000, 200 * MB, OpenAIChat, "OpenAI's chat completions", CHAT_COMPLETIONS
    ),
    "anthropic": Form(
        "anthropic",
        100_000,
        256 * MB - _AROUND,
        AnthropicMessages,
        "Anthropic's Messages",
        MESSAGES,
    ),
}
_PROVIDERS = tuple(FORMS)
