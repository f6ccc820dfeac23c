"""LangChain, litellm, llm, DSPy and LlamaIndex."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.serve.clients.features import (
    CHAT,
    LEAST,
    ORDER,
    QUESTION,
    TOOLS,
    Forecast,
    Target,
    check,
    check_call,
    feature,
)


def _langchain(target: Target, **more: Any) -> Any:
    given = {"base_url": target.v1, "api_key": "none", "model": target.model, "max_retries": 0}
    return import_module("langchain_openai").ChatOpenAI(**given, max_tokens=LEAST, **more)


@feature("LangChain", "chat")
def _(target: Target) -> None:
    check(_langchain(target).bind(max_tokens=8).invoke(QUESTION).usage_metadata["output_tokens"])


@feature("LangChain", "tools")
def _(target: Target) -> None:
    bound = _langchain(target).bind_tools(TOOLS, tool_choice="any")
    said = bound.invoke(QUESTION)
    check_call(said.tool_calls[0]["name"], said.tool_calls[0]["args"])
    messages = import_module("langchain_core.messages")
    results = [messages.ToolMessage("sunny", tool_call_id=call["id"]) for call in said.tool_calls]
    free = _langchain(target).bind_tools(TOOLS).bind(max_tokens=4)
    check(free.invoke([messages.HumanMessage(QUESTION), said, *results]).usage_metadata)


@feature("LangChain", "streamed tools")
def _(target: Target) -> None:
    whole: Any = None
    for chunk in _langchain(target).bind_tools(TOOLS, tool_choice="weather").stream(QUESTION):
        whole = chunk if whole is None else whole + chunk
    check(whole is not None)
    check_call(whole.tool_calls[0]["name"], whole.tool_calls[0]["args"])


@feature("LangChain", "structured")
def _(target: Target) -> None:
    for method in ("json_schema", "function_calling"):
        asked = _langchain(target).with_structured_output(Forecast, method=method)
        check(isinstance(asked.invoke(QUESTION), Forecast), method)


@feature("LangChain", "embeddings")
def _(target: Target) -> None:
    made = import_module("langchain_openai").OpenAIEmbeddings(
        base_url=target.v1, api_key="none", model=target.encoder, check_embedding_ctx_length=False
    )
    check(len(made.embed_documents(["tea", "a boat"])) == 2)


def _litellm(target: Target, **more: Any) -> Any:
    given = {"api_base": target.v1, "api_key": "none", "messages": CHAT} | more
    return import_module("litellm").completion(f"openai/{target.model}", **given)


@feature("litellm", "chat")
def _(target: Target) -> None:
    check(_litellm(target, max_tokens=8).usage.prompt_tokens)


@feature("litellm", "stream")
def _(target: Target) -> None:
    check(list(_litellm(target, max_tokens=8, stream=True)))


@feature("litellm", "tools")
def _(target: Target) -> None:
    made = _litellm(target, tools=TOOLS, tool_choice="required", max_tokens=LEAST)
    (call, *_more) = made.choices[0].message.tool_calls
    check_call(call.function.name, call.function.arguments)


@feature("litellm", "streamed tools")
def _(target: Target) -> None:
    parts = list(
        _litellm(target, tools=TOOLS, tool_choice="required", max_tokens=LEAST, stream=True)
    )
    made = import_module("litellm").stream_chunk_builder(parts, messages=CHAT)
    (call, *_more) = made.choices[0].message.tool_calls
    check_call(call.function.name, call.function.arguments)


@feature("litellm", "structured")
def _(target: Target) -> None:
    made = _litellm(target, response_format=Forecast, max_tokens=LEAST)
    Forecast.model_validate_json(made.choices[0].message.content)


@feature("litellm", "embeddings")
def _(target: Target) -> None:
    made = import_module("litellm").embedding(
        f"openai/{target.encoder}", input=["tea"], api_base=target.v1, api_key="none"
    )
    check(len(made.data) == 1)


def _llm(target: Target) -> Any:
    folder = Path(os.environ["LLM_USER_PATH"])
    model = {"model_id": "here", "model_name": target.model, "api_base": target.v1}
    more = {"supports_schema": True, "supports_tools": True}
    (folder / "extra-openai-models.yaml").write_text(json.dumps([model | more]))
    return import_module("llm").get_model("here")


@feature("llm", "chat")
def _(target: Target) -> None:
    model = _llm(target)
    check(model.prompt(QUESTION, key="none", max_tokens=8, stream=False).usage())


@feature("llm", "stream")
def _(target: Target) -> None:
    check(list(_llm(target).prompt(QUESTION, key="none", max_tokens=8)))


@feature("llm", "structured")
def _(target: Target) -> None:
    made = _llm(target).prompt(QUESTION, key="none", schema=Forecast, max_tokens=LEAST)
    Forecast.model_validate_json(made.text())


@feature("llm", "tools")
def _(target: Target) -> None:
    tool = import_module("llm").Tool(
        name="weather", description="x", input_schema=ORDER, implementation=lambda **_: "sunny"
    )
    made = _llm(target).prompt(QUESTION, key="none", tools=[tool], max_tokens=60)
    made.text()
    for call in made.tool_calls():
        check_call(call.name, call.arguments)


def _dspy(target: Target) -> Any:
    return import_module("dspy").LM(
        f"hosted_vllm/{target.model}", api_base=target.v1, api_key="none", max_tokens=LEAST,
        cache=False,
    )  # fmt: skip


@feature("DSPy", "chat")
def _(target: Target) -> None:
    check(_dspy(target)(messages=CHAT, max_tokens=8))


def _llama_index(target: Target) -> Any:
    return import_module("llama_index.llms.openai_like").OpenAILike(
        model=target.model, api_base=target.v1, api_key="none", is_chat_model=True,
        is_function_calling_model=True, max_tokens=LEAST, max_retries=0,
        context_window=2048,
    )  # fmt: skip


@feature("LlamaIndex", "chat")
def _(target: Target) -> None:
    messages = import_module("llama_index.core.llms")
    said = [messages.ChatMessage(role="user", content=QUESTION)]
    check(_llama_index(target).chat(said, max_tokens=8).message)


@feature("LlamaIndex", "tools")
def _(target: Target) -> None:
    tools = import_module("llama_index.core.tools")

    tool = tools.FunctionTool.from_defaults(
        lambda **given: str(given), name="weather", description="The weather.", fn_schema=Forecast
    )
    model = _llama_index(target)
    made = model.chat_with_tools([tool], user_msg=QUESTION, tool_required=True)
    (call, *_more) = model.get_tool_calls_from_response(made)
    check(call.tool_name == "weather" and Forecast(**call.tool_kwargs), call)


@feature("LlamaIndex", "structured")
def _(target: Target) -> None:
    prompt = import_module("llama_index.core.prompts").PromptTemplate(QUESTION)
    check(isinstance(_llama_index(target).structured_predict(Forecast, prompt), Forecast))
