"""The SDKs of OpenAI and Anthropic, and what is built on them: instructor and pydantic-ai."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from tests.serve.clients.features import (
    CHAT,
    LEAST,
    ORDER,
    QUESTION,
    TOOL,
    TOOLS,
    Forecast,
    Target,
    check,
    check_call,
    feature,
)


def _openai(target: Target) -> Any:
    return import_module("openai").OpenAI(base_url=target.v1, api_key="none", max_retries=0)


@feature("openai", "chat")
def _(target: Target) -> None:
    client = _openai(target)
    found = client.chat.completions.create(model=target.model, messages=CHAT, max_tokens=8)
    check(found.usage.completion_tokens)
    check(client.responses.create(model=target.model, input=QUESTION, max_output_tokens=16).id)


@feature("openai", "stream")
def _(target: Target) -> None:
    made = _openai(target).chat.completions.create(
        model=target.model, messages=CHAT, max_tokens=8, stream=True
    )
    check(list(made)[-1].choices[0].finish_reason)


@feature("openai", "tools")
def _(target: Target) -> None:
    client = _openai(target)
    made = client.chat.completions.create(
        model=target.model, messages=CHAT, tools=TOOLS, tool_choice="required", max_tokens=LEAST
    )
    message = made.choices[0].message
    check_call(message.tool_calls[0].function.name, message.tool_calls[0].function.arguments)
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in message.tool_calls
    ]
    said = [*CHAT, message, *results]
    client.chat.completions.create(model=target.model, messages=said, tools=TOOLS, max_tokens=4)
    flat = [{"type": "function", "strict": True, **TOOL}]
    response = client.responses.create(
        model=target.model, input=QUESTION, tools=flat, tool_choice="required",
        max_output_tokens=LEAST,
    )  # fmt: skip
    check_call(response.output[0].name, response.output[0].arguments)


@feature("openai", "streamed tools")
def _(target: Target) -> None:
    with _openai(target).chat.completions.stream(
        model=target.model, messages=CHAT, tools=TOOLS, tool_choice="required", max_tokens=LEAST
    ) as stream:
        for _event in stream:
            pass
        (call, *_more) = stream.get_final_completion().choices[0].message.tool_calls
    check_call(call.function.name, call.function.arguments)


@feature("openai", "structured")
def _(target: Target) -> None:
    client = _openai(target)
    made = client.chat.completions.parse(
        model=target.model, messages=CHAT, response_format=Forecast, max_tokens=LEAST
    )
    check(isinstance(made.choices[0].message.parsed, Forecast))
    read = client.responses.parse(
        model=target.model, input=QUESTION, text_format=Forecast, max_output_tokens=LEAST
    )
    check(isinstance(read.output_parsed, Forecast))


@feature("openai", "embeddings")
def _(target: Target) -> None:
    made = _openai(target).embeddings.create(model=target.encoder, input=["tea", "a boat"])
    check(len(made.data) == 2 and len(made.data[0].embedding) > 1)


def _anthropic(target: Target) -> Any:
    return import_module("anthropic").Anthropic(base_url=target.url, api_key="none", max_retries=0)


OWN: Any = [{"name": "weather", "description": "The weather.", "input_schema": ORDER}]


@feature("anthropic", "chat")
def _(target: Target) -> None:
    made = _anthropic(target).messages.create(model=target.model, messages=CHAT, max_tokens=8)
    check(made.usage.output_tokens)


@feature("anthropic", "stream")
def _(target: Target) -> None:
    with _anthropic(target).messages.stream(
        model=target.model, messages=CHAT, max_tokens=8
    ) as stream:
        check(stream.get_final_message().stop_reason)


@feature("anthropic", "tools")
def _(target: Target) -> None:
    client = _anthropic(target)
    made = client.messages.create(
        model=target.model, messages=CHAT, tools=OWN, tool_choice={"type": "any"}, max_tokens=LEAST
    )
    check_call(made.content[0].name, made.content[0].input)
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}
        for block in made.content
    ]
    said = [
        *CHAT,
        {"role": "assistant", "content": made.content},
        {"role": "user", "content": results},
    ]
    client.messages.create(model=target.model, messages=said, tools=OWN, max_tokens=4)


@feature("anthropic", "streamed tools")
def _(target: Target) -> None:
    with _anthropic(target).messages.stream(
        model=target.model, messages=CHAT, tools=OWN, tool_choice={"type": "any"}, max_tokens=LEAST
    ) as stream:
        block = stream.get_final_message().content[0]
    check_call(block.name, block.input)


@feature("instructor", "structured")
def _(target: Target) -> None:
    made = import_module("instructor").from_openai(_openai(target))
    found = made.create(
        model=target.model, messages=CHAT, response_model=Forecast, max_tokens=LEAST, max_retries=0
    )
    check(isinstance(found, Forecast))


@feature("instructor", "stream")
def _(target: Target) -> None:
    made = import_module("instructor").from_openai(_openai(target))
    parts = made.create_partial(
        model=target.model, messages=CHAT, response_model=Forecast, max_tokens=LEAST, max_retries=0
    )
    check(list(parts)[-1].city in ("Bonn", "Rome"))


def _agent(target: Target, **more: Any) -> Any:
    models = import_module("pydantic_ai.models.openai")
    provider = import_module("pydantic_ai.providers.openai").OpenAIProvider(
        base_url=target.v1, api_key="none"
    )
    model = models.OpenAIChatModel(target.model, provider=provider)
    settings = {"max_tokens": LEAST}
    return import_module("pydantic_ai").Agent(model, model_settings=settings, **more)


@feature("pydantic-ai", "structured")
def _(target: Target) -> None:
    found = asyncio.run(_agent(target, output_type=Forecast).run(QUESTION)).output
    check(isinstance(found, Forecast))


@feature("pydantic-ai", "stream")
def _(target: Target) -> None:
    async def ask() -> Any:
        async with _agent(target, output_type=Forecast).run_stream(QUESTION) as result:
            return await result.get_output()

    check(isinstance(asyncio.run(ask()), Forecast))
