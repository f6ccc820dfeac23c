"""What clients of other people do with a running server, unchanged: a table of client and feature.

Run by `scripts/clients`, in an environment that has the clients:
python tests/serve/clients/features.py URL MODEL ENCODER TOKENIZER [CLIENT ...]
ENCODER, TOKENIZER: "" for none; a tokenizer is a folder, which lm-eval needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

QUESTION = "What is the weather in Bonn tomorrow?"
CHAT: Any = [{"role": "user", "content": QUESTION}]
ORDER: Any = {
    "type": "object",
    "properties": {"city": {"enum": ["Bonn", "Rome"]}, "days": {"type": "integer", "maximum": 9,
                                                                 "minimum": 0}},
    "required": ["city", "days"],
    "additionalProperties": False,
}  # fmt: skip
TOOL: Any = {"name": "weather", "description": "The weather.", "parameters": ORDER}
LEAST = 400
"""Tokens in which any answer under a schema here ends."""


class Forecast(BaseModel):
    """What answers are to be."""

    city: Literal["Bonn", "Rome"]
    good: bool


class Target:
    """The server, and the names under which it serves."""

    def __init__(self, url: str, model: str, encoder: str, tokenizer: str) -> None:
        self.url, self.model, self.encoder, self.tokenizer = url, model, encoder, tokenizer
        self.v1 = f"{url}/v1"


def check(is_right: object, told: object = "") -> None:
    """Raises AssertionError with what was told."""
    if not is_right:
        raise AssertionError(str(told)[:200])


def check_call(name: object, arguments: Any) -> None:
    """Whether it is a call of TOOL that follows ORDER."""
    given = json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
    check(name == "weather" and given["city"] in ("Bonn", "Rome"), (name, given))
    check(0 <= given["days"] <= 9, given)


Feature = Callable[[Target], object]
CLIENTS: dict[str, dict[str, Feature]] = {}


def feature(client: str, name: str) -> Callable[[Feature], Feature]:
    """What a client does, for the table."""

    def add(ask: Feature) -> Feature:
        CLIENTS.setdefault(client, {})[name] = ask
        return ask

    return add


def _openai(target: Target) -> Any:
    return import_module("openai").OpenAI(base_url=target.v1, api_key="none", max_retries=0)


TOOLS: Any = [{"type": "function", "function": TOOL}]


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


@feature("LOTUS", "chat")
def _(target: Target) -> None:
    lotus, pandas = import_module("lotus"), import_module("pandas")
    lm = import_module("lotus.models").LM(
        model=f"openai/{target.model}", api_base=target.v1, api_key="none", max_tokens=16
    )
    lotus.settings.configure(lm=lm)
    found = pandas.DataFrame({"city": ["Bonn", "Rome"]}).sem_map("Say something about {city}")
    check(len(found) == 2)


@feature("lm-eval", "logprobs")
def _(target: Target) -> None:
    """Log-likelihoods, which it reads off an echoed prompt."""
    api = import_module("lm_eval.models.openai_completions").LocalCompletionsAPI(
        base_url=f"{target.v1}/completions", model=target.model, tokenizer=target.tokenizer,
        tokenizer_backend="huggingface", tokenized_requests=False, max_retries=1,
    )  # fmt: skip
    instance = import_module("lm_eval.api.instance").Instance
    asked = [instance("loglikelihood", {}, ("Tea is", end), 0) for end in (" good", " bad")]
    found = api.loglikelihood(asked, disable_tqdm=True)
    check(all(log < 0 for log, _ in found), found)


def tried(ask: Feature, target: Target) -> str:
    """What came of it."""
    try:
        ask(target)
    except ModuleNotFoundError as error:
        return f"not installed ({error.name})"
    except BaseException as error:
        return f"FAILED {type(error).__name__}: {' '.join(str(error).split())[:160]}"
    return "yes"


def main(url: str, model: str, encoder: str, tokenizer: str, *only: str) -> None:
    """Print the table, and exit with 1 if something failed."""
    warnings.simplefilter("ignore")
    target, failed = Target(url, model, encoder, tokenizer), list[str]()
    names = list(dict.fromkeys(name for each in CLIENTS.values() for name in each))
    print(f"| client | {' | '.join(names)} |", f"|---{'|---' * len(names)}|", sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"LLM_USER_PATH": folder, "OPENAI_API_KEY": "none"}
        for client, features in CLIENTS.items():
            if only and client not in only:
                continue
            told = []
            for name in names:
                is_there = {"embeddings": encoder, "logprobs": tokenizer}.get(name, "yes")
                found = tried(features[name], target) if name in features and is_there else ""
                if found.startswith(("FAILED", "not installed")):
                    failed.append(f"{client}, {name}: {found}")
                told.append(found.partition(" ")[0])
            print(f"| {client} | {' | '.join(told)} |", flush=True)
    for each in failed:
        print(each, flush=True)
    sys.exit(1 if any("FAILED" in each for each in failed) else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
