"""Fields that bodies of OpenAI's API share: messages, tools, and how answers are chosen."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from llguidance import regex_to_lark
from llguidance.gbnf_to_lark import any_to_lark
from pydantic import Field, model_validator

from relquery.prompt import MOST_SCHEMA, Adjustments, Prompt, Role, Sampling, Span
from relquery.serve import bodies
from relquery.serve.errors import bad_request, not_supported, refusing
from relquery.tools import Function, ToolCall, ToolResult, Tools, ToolUse

SHARED: dict[str, Any] = {
    # of whom and for what: they change no answer
    "user": bodies.ANY,
    "prompt_cache_key": bodies.ANY,
    "prompt_cache_options": bodies.ANY,
    "prompt_cache_retention": bodies.ANY,
    "safety_identifier": bodies.ANY,
    "service_tier": ("auto", "default"),  # which ask for nothing
}
"""What all three APIs accept."""
ACCEPTED: dict[str, Any] = SHARED | {"metadata": bodies.ANY}
Penalty = Annotated[float, Field(ge=-2, le=2)]
TokenName = Annotated[str, Field(pattern=r"^\d{1,9}$")]
Bias = Annotated[float, Field(ge=-100, le=100)]


class JsonSchema(bodies.Inner):
    """A named schema. strict, name, description: as in OpenAI's API; answers always follow it."""

    name: str = "answer"
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(bodies.Inner):
    """Answers are JSON that is valid under a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class OtherFormat(bodies.Inner):
    """Answers are text, or JSON objects."""

    type: Literal["text", "json_object"]


class StructuredOutputs(bodies.Inner):
    """vLLM's field, of which one is given: answers among some texts, under a JSON Schema, of a
    regular expression, or of a grammar in Lark's form or llama.cpp's GBNF."""

    choice: Annotated[list[str], Field(min_length=1)] | None = None
    json_: dict[str, Any] | str | None = Field(None, alias="json")
    regex: str | None = None
    grammar: str | None = None
    json_object: bool | None = None


class AnswerForm(NamedTuple):
    """The form of an answer; see Sampling for the fields."""

    schema: str | None = None
    grammar: str | None = None
    labels: tuple[str, ...] = ()
    tools: ToolUse | None = None


class Padding(bodies.Inner):
    """include_obfuscation: no event is padded, whatever it says."""

    include_obfuscation: bool | None = None


class StreamOptions(Padding):
    """include_usage: a last event with the tokens of all choices."""

    include_usage: bool | None = None


class SamplingFields(bodies.Body):
    """Fields that chat and plain completions share. From `top_k` on, they are vLLM's own."""

    model: str
    max_tokens: bodies.Positive | None = None
    n: Annotated[int, Field(ge=1, le=128), bodies.WHOLE] | None = 1
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    seed: bodies.Integer | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: bodies.Temperature | None = None
    top_p: bodies.TopP | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[TokenName, Bias] | None = None
    top_k: Annotated[int, Field(ge=-1), bodies.WHOLE] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    min_tokens: bodies.Natural | None = None
    repetition_penalty: Annotated[float, Field(ge=0.001, le=1000)] | None = None
    ignore_eos: bool | None = None
    structured_outputs: StructuredOutputs | None = None
    relquery: bodies.DeclaredFields | None = None

    @property
    def choices(self) -> int:
        """Answers to each prompt."""
        return self.n or 1


_ADJUSTED = [setting.name for setting in fields(Adjustments)]


def samplings(
    body: SamplingFields,
    max_tokens: int,
    form: AnswerForm | None = None,
    logprobs: int | None = None,
    tools: ToolUse | None = None,
) -> list[Sampling]:
    """How the answers of each choice are chosen: one for all of them, or one each if they would be
    equal otherwise. form: what the body's own API asks for. logprobs: see Sampling. Raises
    HttpError."""
    form = _form_of(form, body.structured_outputs, tools)
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    if form.schema is not None and stops:
        raise not_supported("stop", "Answers under a schema end with their JSON; leave it out.")
    given = {name: getattr(body, name) for name in _ADJUSTED if getattr(body, name) is not None}
    if "logit_bias" in given:
        given["logit_bias"] = {int(token): bias for token, bias in given["logit_bias"].items()}
    temperature = 1.0 if body.temperature is None else body.temperature
    seeds = [body.seed]
    if body.seed is not None and temperature and body.choices > 1:
        seeds = [body.seed + choice for choice in range(body.choices)]
    with refusing():
        adjustments = Adjustments(**given) if given else None
        return [
            Sampling(
                max_tokens=max_tokens,
                temperature=temperature,
                top_p=1.0 if body.top_p is None else body.top_p,
                top_k=max(0, body.top_k or 0),
                seed=seed,
                stop=() if form.labels else stops,
                logprobs=logprobs,
                adjustments=adjustments,
                **form._asdict(),
            )
            for seed in seeds
        ]


def format_of(given: Any) -> AnswerForm | None:
    """What a format of the body asks for."""
    match given:
        case JsonSchema():
            return AnswerForm(schema=json.dumps(given.schema_))
        case JsonSchemaFormat():
            return AnswerForm(schema=json.dumps(given.json_schema.schema_))
        case OtherFormat(type="json_object"):
            return AnswerForm(grammar=_ANY_OBJECT)
    return None


def _form_of(
    form: AnswerForm | None, structured: StructuredOutputs | None, tools: ToolUse | None
) -> AnswerForm:
    """The form that is asked for in one place of a body. Raises HttpError where it is in two."""
    forms = ([] if form is None else [form]) + ([] if structured is None else _forms(structured))
    if len(forms) > 1:
        raise bad_request(
            "The form of the answer is given twice: of response_format and each field of "
            "structured_outputs, one may be given.",
            "structured_outputs",
        )
    if tools is None or tools.choice == "none":
        return forms[0] if forms else AnswerForm(tools=tools)
    if forms and tools.choice == "auto":
        name = "structured_outputs" if form is None else "response_format"
        raise not_supported(name, "Beside tools that the model may call or not, leave it out.")
    return AnswerForm(tools=tools)


def _forms(given: StructuredOutputs) -> list[AnswerForm]:
    forms = []
    if given.json_ is not None:
        text = given.json_ if isinstance(given.json_, str) else json.dumps(given.json_)
        forms.append(AnswerForm(schema=text))
    if given.choice is not None:
        forms.append(AnswerForm(labels=tuple(given.choice)))
    if given.regex is not None:
        forms.append(AnswerForm(grammar=_read("regex", regex_to_lark, given.regex)))
    if given.grammar is not None:
        forms.append(AnswerForm(grammar=_read("grammar", any_to_lark, given.grammar)))
    if given.json_object:
        forms.append(AnswerForm(grammar=_ANY_OBJECT))
    return forms


def _read(name: str, read: Callable[[str], str], text: str) -> str:
    """A grammar in Lark's form. name: of the field. Raises HttpError for one that is not read."""
    if len(text) > MOST_SCHEMA:
        return text  # which is refused
    try:
        content = read(text)
    except Exception as error:  # the library raises nothing narrower
        message = f"structured_outputs.{name} cannot be read: {error}"
        raise bad_request(message, "structured_outputs") from error
    return f"start: /{content}/" if name == "regex" else str(content)


_ANY_OBJECT = (
    'start: %json {"type": "object", "x-guidance": {"whitespace_flexible": false, '
    '"item_separator": ",", "key_separator": ":"}}'
)


class TextPart(bodies.Inner):
    """Text in a message. prompt_cache_breakpoint: all prefixes are cached, with or without it."""

    type: Literal["text", "input_text", "output_text"]
    text: str
    prompt_cache_breakpoint: Any = None
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class DescribedFunction(bodies.Inner):
    """A function. strict: arguments follow the schema, whatever it says."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedFunction(bodies.Inner):
    """A function by its name."""

    name: str


class CalledFunction(NamedFunction):
    """The called function and its arguments: the text of a JSON object."""

    arguments: str = "{}"


class CallsTools(bodies.Body):
    """A body with functions that its answer may call, in chats and responses."""

    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None

    @property
    def functions(self) -> list[Function]:
        """That may be called. Raises HttpError."""
        described = (getattr(tool, "function", tool) for tool in self.tools or ())
        return [
            bodies.function_of(each.name, each.description, each.parameters) for each in described
        ]

    @property
    def tool_use(self) -> ToolUse | None:
        """How they may be called. Raises HttpError."""
        choice = self.tool_choice or "auto"
        if not isinstance(choice, str):
            choice = getattr(choice, "function", choice).name
        is_parallel = self.parallel_tool_calls is not False
        return bodies.use_of(self.functions, choice, parallel=is_parallel)


class MadeCall(bodies.Body):
    """A call that the assistant made."""

    ACCEPTED: ClassVar = {"index": bodies.ANY}
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(bodies.Body):
    """A message of a chat. Its parts are one message.

    tool_calls: of the assistant, which then may say nothing. tool_call_id: of a tool's message.
    """

    ACCEPTED: ClassVar = {
        "name": bodies.ANY,  # which no model's template reads
    }
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(min_length=1)] | None = None
    tool_calls: list[MadeCall] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _check_parts(self) -> ChatMessage:
        if self.tool_calls and self.role != "assistant":
            raise ValueError("tool_calls are of the assistant")
        if (self.role == "tool") != (self.tool_call_id is not None):
            raise ValueError("a message of a tool, and no other, has a tool_call_id")
        return self

    @property
    def texts(self) -> list[str]:
        """The text of each part."""
        said = self.content or []
        return [said] if isinstance(said, str) else [part.text for part in said]


def prompt_of(messages: Sequence[ChatMessage], functions: Sequence[Function] = ()) -> Prompt:
    """A chat as a prompt: one span for each part. functions: that may be called.

    Raises HttpError for a chat without text."""
    spans: list[Span] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.content is None and message.role != "assistant":
            raise bad_request("Only the assistant may say nothing: give content.", "messages")
        if message.tool_call_id is not None:
            name = names.get(message.tool_call_id, "")
            told = ToolResult(message.tool_call_id, name, "".join(message.texts))
            spans.append(Span(told, Role.TOOL, begins=True))
            continue
        role = Role("system" if message.role == "developer" else message.role)
        first = len(spans)
        spans += (Span(text, role) for text in message.texts)
        for call in message.tool_calls or ():
            names[call.id] = call.function.name
            where = "messages.tool_calls.function.arguments"
            given = bodies.arguments_of(call.function.arguments, where)
            spans.append(Span(ToolCall(call.id, call.function.name, given), role))
        if first < len(spans):
            spans[first] = replace(spans[first], begins=True)
    if functions:
        spans.insert(0, Span(Tools(tuple(functions)), Role.SYSTEM))
    if not any(span.content for span in spans[bool(functions) :]):
        raise bad_request("The messages contain no text.", "messages")
    return tuple(spans)
