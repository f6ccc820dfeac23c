"""The bodies know every field that the installed SDKs send: it is accepted, or refused by name.

The fields are read from the SDKs' own types, so that a new release that adds some fails here.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, NotRequired, Required, Union, get_args, get_origin

import pytest
from anthropic.types import (
    cache_control_ephemeral_param,
    message_count_tokens_params,
    message_create_params,
    metadata_param,
    output_config_param,
    text_block_param,
)
from anthropic.types.beta import message_count_tokens_params as beta_count_tokens_params
from anthropic.types.beta import message_create_params as beta_create_params
from openai.types import batch_create_params, completion_create_params
from openai.types import chat as openai_chat
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import easy_input_message_param as easy_params
from openai.types.responses import response_create_params as response_params
from openai.types.responses import response_output_message_param as output_params
from openai.types.shared_params import reasoning
from openai.types.shared_params.response_format_json_schema import JSONSchema
from pydantic import BaseModel, ValidationError
from typing_extensions import get_type_hints

from relquery.serve.body import Body
from relquery.serve.errors import HttpError
from relquery.serve.wire.anthropic.blocks import CacheControl, TextBlock
from relquery.serve.wire.anthropic.bodies import Counted, MessageBody, Metadata, OutputConfig
from relquery.serve.wire.openai.batches.batch_routes import BatchBody
from relquery.serve.wire.openai.chat import ChatBody
from relquery.serve.wire.openai.completions import CompletionBody
from relquery.serve.wire.openai.messages import ChatMessage, TextPart
from relquery.serve.wire.openai.responses.asked import (
    InputMessage,
    Reasoning,
    ResponseBody,
    TextOptions,
)
from relquery.serve.wire.openai.sampling import JsonSchema, Padding, StreamOptions

ASKED = [{"role": "user", "content": "Is tea good?"}]
CHAT = {"model": "demo", "messages": ASKED}
USER = {"role": "user", "content": "Tea"}
SAID = {"role": "assistant", "content": "Yes"}
TEXT = {"type": "text", "text": "Tea"}


class Pair(NamedTuple):
    """A body of ours, the SDK's types for it, and a value that is accepted."""

    body: type[BaseModel]
    types: tuple[Any, ...]
    valid: dict[str, Any]


PAIRS = [
    Pair(ChatBody, get_args(chat_params.CompletionCreateParams), CHAT),
    Pair(ChatMessage, (openai_chat.ChatCompletionUserMessageParam,), USER),
    Pair(ChatMessage, (openai_chat.ChatCompletionAssistantMessageParam,), SAID),
    Pair(TextPart, (openai_chat.ChatCompletionContentPartTextParam,), TEXT),
    Pair(StreamOptions, (openai_chat.ChatCompletionStreamOptionsParam,), {}),
    Pair(JsonSchema, (JSONSchema,), {"name": "answer", "schema": {"type": "string"}}),
    Pair(
        CompletionBody,
        get_args(completion_create_params.CompletionCreateParams),
        {"model": "demo", "prompt": "Tea is"},
    ),
    Pair(
        ResponseBody,
        get_args(response_params.ResponseCreateParams),
        {"model": "demo", "input": "Is tea good?"},
    ),
    Pair(InputMessage, (easy_params.EasyInputMessageParam,), USER),
    Pair(InputMessage, (output_params.ResponseOutputMessageParam,), SAID),
    Pair(Padding, (response_params.StreamOptions,), {}),
    Pair(Reasoning, (reasoning.Reasoning,), {}),
    Pair(TextOptions, (response_params.ResponseTextConfigParam,), {}),
    Pair(
        BatchBody,
        (batch_create_params.BatchCreateParams,),
        {
            "input_file_id": "file-1",
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        },
    ),
    Pair(
        MessageBody,
        (
            *get_args(message_create_params.MessageCreateParams),
            *get_args(beta_create_params.MessageCreateParams),
        ),
        CHAT | {"max_tokens": 3},
    ),
    Pair(
        Counted,
        (
            message_count_tokens_params.MessageCountTokensParams,
            beta_count_tokens_params.MessageCountTokensParams,
        ),
        CHAT,
    ),
    Pair(TextBlock, (text_block_param.TextBlockParam,), TEXT),
    Pair(
        CacheControl,
        (cache_control_ephemeral_param.CacheControlEphemeralParam,),
        {"type": "ephemeral"},
    ),
    Pair(Metadata, (metadata_param.MetadataParam,), {}),
    Pair(OutputConfig, (output_config_param.OutputConfigParam,), {}),
]

NULL_MEANS_NOTHING_HERE = {
    (CompletionBody, "prompt"),  # OpenAI's default is a token of its own models
    (ChatMessage, "content"),  # null beside tool_calls, which are refused
}


class Case(NamedTuple):
    """A field that a client may send. is_null: whether it may be null."""

    pair: Pair
    name: str
    is_null: bool


def cases() -> Iterator[Case]:
    for pair in PAIRS:
        hints: dict[str, list[Any]] = {}
        for kind in pair.types:
            for name, hint in get_type_hints(kind).items():
                hints.setdefault(name, []).append(hint)
        for name, found in hints.items():
            yield Case(pair, name, any(map(may_be_null, found)))


def may_be_null(hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType, Required, NotRequired):
        return any(map(may_be_null, get_args(hint)))
    return hint is type(None) or (get_origin(hint) is Literal and None in get_args(hint))


CASES = list(cases())


def name_of(case: Any) -> str:
    return f"{case.pair.body.__name__}-{case.name}"


def refusal(pair: Pair, **fields: Any) -> HttpError | ValidationError | None:
    """Why a body with these fields is refused; None if it is not."""
    try:
        pair.body.model_validate(pair.valid | fields)
    except (HttpError, ValidationError) as error:
        return error
    return None


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.types[0].__name__)
def test_what_the_cases_start_from_is_accepted(pair: Pair) -> None:
    assert refusal(pair) is None


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_field_of_the_sdk_is_known(case: Case) -> None:
    """A value that no field has is not of the right type, or not supported; never not known."""
    found = refusal(case.pair, **{case.name: {"no": ["such", "value"]}})
    if isinstance(found, HttpError):
        assert (found.code, found.param) != ("unknown", case.name), found
        assert found.code != "unsupported" or case.name in found.message
    elif isinstance(found, ValidationError):
        places = [(each["loc"][0], len(each["loc"]), each["type"]) for each in found.errors()]
        assert (case.name, 1, "extra_forbidden") not in places, found


@pytest.mark.parametrize("case", [each for each in CASES if each.is_null], ids=name_of)
def test_null_means_the_default_where_the_sdk_may_send_it(case: Case) -> None:
    found = refusal(case.pair, **{case.name: None})
    if (case.pair.body, case.name) in NULL_MEANS_NOTHING_HERE:
        assert found is not None
    else:
        assert found is None, found


BODIES = dict.fromkeys(pair.body for pair in PAIRS if issubclass(pair.body, Body))


@pytest.mark.parametrize("body", BODIES)
def test_only_fields_that_are_accepted_are_suggested(body: type[Body]) -> None:
    """Of all fields that are only there to be refused, none is offered in place of a mistake."""
    pair = next(pair for pair in PAIRS if pair.body is body)
    refused = [name for name in body.ACCEPTED if refusal(pair, **{name: {"no": 1}}) is not None]
    for name in [*refused, *body.model_fields]:
        found = refusal(pair, **{name + "x": 1})
        assert isinstance(found, HttpError)
        assert found.code == "unknown"
        assert not any(f"'{other}'?" in found.message for other in refused)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("temprature", "temperature"),
        ("max_token", "max_tokens"),
        ("stops", "stop"),
        ("streem", "stream"),
        ("image", None),
        ("format", None),
        ("best", None),
        ("message_id", None),
        ("models_list", None),
    ],
)
def test_a_suggestion_is_made_for_a_slip_alone(given: str, meant: str | None) -> None:
    found = refusal(PAIRS[0], **{given: 1})
    assert isinstance(found, HttpError)
    assert found.message.endswith(f"Did you mean '{meant}'?" if meant else "is not known.")


@pytest.mark.parametrize(
    ("body", "fields", "accepted"),
    [
        (ChatBody, {"service_tier": "auto"}, True),
        (ChatBody, {"service_tier": "default"}, True),
        (ChatBody, {"service_tier": "flex"}, False),
        (ResponseBody, {"service_tier": "priority"}, False),
        (ResponseBody, {"service_tier": "fastest"}, False),
        (ChatBody, {"reasoning_effort": "high"}, True),
        (ChatBody, {"reasoning_effort": "very"}, False),
        (ChatBody, {"reasoning_effort": 3}, False),
        (ResponseBody, {"reasoning": {"effort": None, "summary": None}}, True),
        (ResponseBody, {"reasoning": {"summary": "auto"}}, False),
        (ChatBody, {"tool_choice": "auto", "tools": []}, True),
        (ChatBody, {"tool_choice": "none"}, True),
        (ChatBody, {"tool_choice": "required"}, False),
        (ResponseBody, {"tool_choice": "auto"}, True),
        (MessageBody, {"tool_choice": {"type": "auto"}}, True),
        (MessageBody, {"tool_choice": {"type": "none"}}, True),
        (MessageBody, {"tool_choice": {"type": "any"}}, False),
        (MessageBody, {"system": []}, True),
        (MessageBody, {"system": ""}, True),
        (MessageBody, {"service_tier": "priority"}, False),
        (CompletionBody, {"suffix": ""}, True),
        (CompletionBody, {"suffix": "."}, False),
        (CompletionBody, {"n": None}, True),
        (ChatBody, {"stop": []}, True),
    ],
)
def test_values_that_ask_for_nothing_are_accepted_and_others_refused_by_name(
    body: type[BaseModel], fields: dict[str, Any], accepted: bool
) -> None:
    pair = next(pair for pair in PAIRS if pair.body is body)
    found = refusal(pair, **fields)
    assert (found is None) == accepted
    assert found is None or next(iter(fields)) in str(found)
