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
from openai.types.responses import ResponseTextConfigParam
from openai.types.responses import easy_input_message_param as easy_params
from openai.types.responses import response_create_params as response_params
from openai.types.responses import response_output_message_param as output_params
from openai.types.shared_params import reasoning
from openai.types.shared_params.response_format_json_schema import JSONSchema
from pydantic import BaseModel, ValidationError
from typing_extensions import get_type_hints

from relquery.serve.anthropic.requests import (
    CacheControl,
    Counted,
    MessageBody,
    Metadata,
    OutputConfig,
    TextBlock,
)
from relquery.serve.batches.routes import BatchBody
from relquery.serve.bodies import Body
from relquery.serve.errors import HttpError
from relquery.serve.openai.completions import ChatBody, CompletionBody
from relquery.serve.openai.fields import ChatMessage, JsonSchema, Padding, StreamOptions, TextPart
from relquery.serve.openai.responses import (
    InputMessage,
    Reasoning,
    ResponseBody,
    TextOptions,
)
from tests.cases import cases

ASKED = [{"role": "user", "content": "Is tea good?"}]
CHAT = {"model": "demo", "messages": ASKED}
USER = {"role": "user", "content": "Tea"}
SAID = {"role": "assistant", "content": "Yes"}
TEXT = {"type": "text", "text": "Tea"}
BATCH = {"input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h"}


class Pair(NamedTuple):
    """A body of ours, the SDK's types for it, and a value that is accepted."""

    body: type[BaseModel]
    types: tuple[Any, ...]
    valid: dict[str, Any]


CREATED, COUNTED = (
    get_args(message_create_params.MessageCreateParams)
    + get_args(beta_create_params.MessageCreateParams),
    (
        message_count_tokens_params.MessageCountTokensParams,
        beta_count_tokens_params.MessageCountTokensParams,
    ),
)
COMPLETED = get_args(completion_create_params.CompletionCreateParams)
RESPONDED = get_args(response_params.ResponseCreateParams)
MARKED = cache_control_ephemeral_param.CacheControlEphemeralParam
PAIRS = [
    Pair(ChatBody, get_args(chat_params.CompletionCreateParams), CHAT),
    Pair(ChatMessage, (openai_chat.ChatCompletionUserMessageParam,), USER),
    Pair(ChatMessage, (openai_chat.ChatCompletionAssistantMessageParam,), SAID),
    Pair(TextPart, (openai_chat.ChatCompletionContentPartTextParam,), TEXT),
    Pair(StreamOptions, (openai_chat.ChatCompletionStreamOptionsParam,), {}),
    Pair(JsonSchema, (JSONSchema,), {"name": "answer", "schema": {"type": "string"}}),
    Pair(CompletionBody, COMPLETED, {"model": "demo", "prompt": "Tea is"}),
    Pair(ResponseBody, RESPONDED, {"model": "demo", "input": "Is tea good?"}),
    Pair(InputMessage, (easy_params.EasyInputMessageParam,), USER),
    Pair(InputMessage, (output_params.ResponseOutputMessageParam,), SAID),
    Pair(Padding, (response_params.StreamOptions,), {}),
    Pair(Reasoning, (reasoning.Reasoning,), {}),
    Pair(TextOptions, (ResponseTextConfigParam,), {}),
    Pair(BatchBody, (batch_create_params.BatchCreateParams,), BATCH),
    Pair(MessageBody, CREATED, CHAT | {"max_tokens": 3}),
    Pair(Counted, COUNTED, CHAT),
    Pair(TextBlock, (text_block_param.TextBlockParam,), TEXT),
    Pair(CacheControl, (MARKED,), {"type": "ephemeral"}),
    Pair(Metadata, (metadata_param.MetadataParam,), {}),
    Pair(OutputConfig, (output_config_param.OutputConfigParam,), {}),
]

FIRST = {pair.body: pair for pair in reversed(PAIRS) if issubclass(pair.body, Body)}

NULL_MEANS_NOTHING_HERE = {
    (CompletionBody, "prompt"),  # OpenAI's default is a token of its own models
}


def fields() -> Iterator[tuple[Pair, str, bool]]:
    """(pair, a field that a client may send, whether it may be null)"""
    for pair in PAIRS:
        hints: dict[str, list[Any]] = {}
        for kind in pair.types:
            for name, hint in get_type_hints(kind).items():
                hints.setdefault(name, []).append(hint)
        yield from ((pair, name, any(map(may_be_null, found))) for name, found in hints.items())


def may_be_null(hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType, Required, NotRequired):
        return any(map(may_be_null, get_args(hint)))
    return hint is type(None) or (get_origin(hint) is Literal and None in get_args(hint))


def refusal(pair: Pair, **fields: Any) -> HttpError | ValidationError | None:
    """Why a body with these fields is refused; None if it is not."""
    try:
        pair.body.model_validate(pair.valid | fields)
    except (HttpError, ValidationError) as error:
        return error
    return None


def test_every_field_of_the_sdks_is_known() -> None:
    """A value that no field has is not of the right type, or refused by the field's name."""
    assert [pair.body for pair in PAIRS if refusal(pair) is not None] == []
    for pair, name, _ in fields():
        found = refusal(pair, **{name: {"no": ["such", "value"]}})
        if isinstance(found, HttpError):
            assert name in found.message or found.param == "no"
        elif isinstance(found, ValidationError):
            places = [(each["loc"][0], len(each["loc"]), each["type"]) for each in found.errors()]
            assert (name, 1, "extra_forbidden") not in places, found


def test_null_means_the_default_where_the_sdk_may_send_it() -> None:
    for pair, name, is_null in fields():
        if is_null:
            found = refusal(pair, **{name: None})
            is_refused = (pair.body, name) in NULL_MEANS_NOTHING_HERE
            assert (found is not None) == is_refused, (pair.body, name, found)


@pytest.mark.parametrize("pair", FIRST.values())
def test_only_fields_that_are_accepted_are_suggested(pair: Pair) -> None:
    """Of all fields that are only there to be refused, none is offered in place of a mistake."""
    body: Any = pair.body
    refused = [name for name in body.ACCEPTED if refusal(pair, **{name: {"no": 1}}) is not None]
    for name in [*refused, *body.model_fields]:
        found = refusal(pair, **{name + "x": 1})
        assert isinstance(found, HttpError)
        assert not any(f"'{other}'?" in found.message for other in refused)


@pytest.mark.parametrize(("given", "meant"), cases(__file__, "slips"))
def test_a_suggestion_is_made_for_a_slip_alone(given: str, meant: str | None) -> None:
    found = refusal(PAIRS[0], **{given: 1})
    assert isinstance(found, HttpError)
    assert found.message.endswith(f"Did you mean '{meant}'?" if meant else "Leave it out.")


@pytest.mark.parametrize(("name", "given", "accepted"), cases(__file__, "values"))
def test_values_that_ask_for_nothing_are_accepted_and_others_refused_by_name(
    name: str, given: dict[str, Any], accepted: bool
) -> None:
    pair = next(pair for pair in PAIRS if pair.body.__name__ == name)
    found = refusal(pair, **given)
    assert (found is None) == accepted
    assert found is None or next(iter(given)) in str(found)
