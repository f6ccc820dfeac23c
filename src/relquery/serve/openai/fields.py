"""Fields that bodies of OpenAI's API share: messages, and how answers are chosen."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from llguidance import regex_to_lark
from llguidance.gbnf_to_lark import any_to_lark
from pydantic import Field, model_validator

from relquery.errors import ConfigError
from relquery.prompt import MOST_SCHEMA, Adjustments, Prompt, Role, Sampling, Span
from relquery.serve.body import (
    ANY,
    NONE_OF,
    NOTHING,
    OFF,
    WHOLE,
    Body,
    Declared,
    Inner,
    Integer,
)
from relquery.serve.errors import bad_request, not_supported
from relquery.serve.tools import CallsTools, arguments_of, function_of
from relquery.tools import Function, ToolCall, ToolResult, Tools, ToolUse

MOST_CHOICES = 128

Stop = str | Annotated[list[str], Field(max_length=16)] | None

SHARED: dict[str, Any] = {
    # of whom and for what: they change no answer
    "user": ANY,
    "prompt_cache_key": ANY,
    "prompt_cache_options": ANY,
    "prompt_cache_retention": ANY,
    "safety_identifier": ANY,
    # what would change answers, where it asks for nothing
    "service_tier": (None, "auto", "default"),
    "store": OFF,
    "moderation": NOTHING,
}
"""What all three APIs accept."""
ACCEPTED: dict[str, Any] = SHARED | {"metadata": ANY}
Penalty = Annotated[float, Field(ge=-2, le=2)] | None
TokenName = Annotated[str, Field(pattern=r"^\d{1,9}$")]
Bias = Annotated[float, Field(ge=-100, le=100)]


class JsonSchema(Inner):
    """A named schema. strict, name, description: as in OpenAI's API; answers always follow it."""

    name: str = "answer"
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None

    @property
    def written(self) -> str:
        """The schema as text."""
        return json.dumps(self.schema_)


class JsonSchemaFormat(Inner):
    """Answers are JSON that is valid under a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class TextFormat(Inner):
    """Answers are text."""

    type: Literal["text"]


class JsonObjectFormat(Inner):
    """Answers are JSON objects."""

    type: Literal["json_object"]


ResponseFormat = Annotated[
    TextFormat | JsonSchemaFormat | JsonObjectFormat, Field(discriminator="type")
]


class StructuredOutputs(Inner):
    """vLLM's field, of which one is given: answers among some texts, under a JSON Schema, of a
    regular expression, or of a grammar in Lark's form or llama.cpp's GBNF."""

    choice: Annotated[list[str], Field(min_length=1)] | None = None
    json_: dict[str, Any] | str | None = Field(None, alias="json")
    regex: str | None = None
    grammar: str | None = None
    json_object: bool | None = None


class AnswerForm(NamedTuple):
    """What form an answer has; see Sampling for the fields."""

    schema: str | None = None
    grammar: str | None = None
    labels: tuple[str, ...] = ()
    tools: ToolUse | None = None


_FREE = AnswerForm()


class Padding(Inner):
    """include_obfuscation: no event is padded, whatever it says."""

    include_obfuscation: bool | None = None


class StreamOptions(Padding):
    """include_usage: a last event with the tokens of all choices."""

    include_usage: bool | None = None


class Sampled(Body):
    """Fields that chat and plain completions share. From `top_k` on, they are vLLM's own."""

    model: str
    max_tokens: Annotated[int, Field(ge=1), WHOLE] | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES), WHOLE] | None = 1
    stop: Stop = None
    seed: Integer | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    frequency_penalty: Penalty = None
    presence_penalty: Penalty = None
    logit_bias: dict[TokenName, Bias] | None = None
    top_k: Annotated[int, Field(ge=-1), WHOLE] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0), WHOLE] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=1000)] | None = None
    ignore_eos: bool | None = None
    structured_outputs: StructuredOutputs | None = None
    relquery: Declared | None = None

    @property
    def choices(self) -> int:
        """Answers to each prompt."""
        return self.n or 1

    @property
    def adjustments(self) -> Adjustments | None:
        """What changes logits; None for nothing. Raises ConfigError."""
        given = {name: getattr(self, name) for name in _ADJUSTED if getattr(self, name) is not None}
        if not given:
            return None
        bias = tuple((int(token), each) for token, each in given.pop("logit_bias", {}).items())
        return Adjustments(**given, logit_bias=bias)

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end an answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


_ADJUSTED = [one.name for one in fields(Adjustments)]


def samplings(
    body: Sampled,
    max_tokens: int,
    form: AnswerForm = _FREE,
    logprobs: int | None = None,
) -> list[Sampling]:
    """How the answers of each choice are chosen: one for all of them, or one each if they have
    seeds. form: what the body's own API asks for. logprobs: see Sampling. Raises HttpError."""
    form = _one_form(form, body.structured_outputs)
    temperature = 1.0 if body.temperature is None else body.temperature
    try:
        adjustments = body.adjustments
        found = [
            Sampling(
                max_tokens=max_tokens,
                temperature=temperature,
                top_p=1.0 if body.top_p is None else body.top_p,
                top_k=max(0, body.top_k or 0),
                seed=seed,
                stop=body.stops if form.schema is None and not form.labels else (),
                logprobs=logprobs,
                adjustments=adjustments,
                **form._asdict(),
            )
            for seed in _seeds(body, temperature)
        ]
    except ConfigError as error:
        raise bad_request(str(error)) from error
    if form.schema is not None and body.stops:
        raise not_supported("stop", "Answers under a schema end with their JSON; leave it out.")
    return found


def _one_form(form: AnswerForm, given: StructuredOutputs | None) -> AnswerForm:
    """The form that is asked for in one place of a body. Raises HttpError where it is in two."""
    found = [form] if form != _FREE else []
    if given is not None:
        if given.json_ is not None:
            text = given.json_ if isinstance(given.json_, str) else json.dumps(given.json_)
            found.append(AnswerForm(schema=text))
        if given.choice is not None:
            found.append(AnswerForm(labels=tuple(given.choice)))
        if given.regex is not None:
            found.append(AnswerForm(grammar=_read("regex", regex_to_lark, given.regex)))
        if given.grammar is not None:
            found.append(AnswerForm(grammar=_read("grammar", any_to_lark, given.grammar)))
        if given.json_object:
            found.append(AnswerForm(grammar=_ANY_OBJECT))
    if len(found) > 1:
        raise bad_request(
            "The form of the answer is given twice: of response_format, tools and each field of "
            "structured_outputs, one may be given.",
            "structured_outputs",
        )
    return found[0] if found else form


def _read(name: str, read: Callable[[str], str], text: str) -> str:
    """A grammar in Lark's form. name: of the field. Raises HttpError for one that is not read."""
    if len(text) > MOST_SCHEMA:
        return text  # which is refused
    try:
        found = read(text)
    except Exception as error:  # the library raises nothing narrower
        message = f"structured_outputs.{name} cannot be read: {error}"
        raise bad_request(message, "structured_outputs") from error
    return f"start: /{found}/" if name == "regex" else str(found)


_ANY_OBJECT = (
    'start: %json {"type": "object", "x-guidance": {"whitespace_flexible": false, '
    '"item_separator": ",", "key_separator": ":"}}'
)


def _seeds(body: Sampled, temperature: float) -> list[int | None]:
    """A seed for each choice where choices would be equal otherwise; else one for all."""
    if body.seed is None or temperature == 0 or body.choices == 1:
        return [body.seed]
    return [body.seed + choice for choice in range(body.choices)]


def form_of(
    given: TextFormat | JsonSchema | JsonSchemaFormat | JsonObjectFormat | None,
    tools: ToolUse | None = None,
) -> AnswerForm:
    """What a format asks for, or tools. Raises HttpError if both ask for something."""
    found = AnswerForm(tools=tools)
    match given:
        case JsonSchema():
            found = found._replace(schema=given.written)
        case JsonSchemaFormat(json_schema=inner):
            found = found._replace(schema=inner.written)
        case JsonObjectFormat():
            found = found._replace(grammar=_ANY_OBJECT)
    if tools is None or not (found.schema or found.grammar):
        return found
    if tools.choice == "auto":
        raise not_supported(
            "response_format", "Beside tools that the model may call or not, leave it out."
        )
    return found._replace(tools=None) if tools.choice == "none" else AnswerForm(tools=tools)


class TextPart(Inner):
    """Text in a message. prompt_cache_breakpoint: all prefixes are cached, with or without it."""

    type: Literal["text", "input_text", "output_text"]
    text: str
    prompt_cache_breakpoint: Any = None
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class DescribedFunction(Inner):
    """A function. strict: arguments follow the schema, whatever it says."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def described(self) -> Function:
        """See CallsTools. Raises HttpError."""
        return function_of(self.name, self.description, self.parameters)


class FunctionTool(Inner):
    """A function that the model may call."""

    type: Literal["function"] = "function"
    function: DescribedFunction

    @property
    def described(self) -> Function:
        """See CallsTools. Raises HttpError."""
        return self.function.described


class ToolOptions(CallsTools):
    """How functions are called, in chats and responses."""

    tool_choice: Any = None
    parallel_tool_calls: bool | None = None

    @property
    def chosen(self) -> str:
        """See CallsTools."""
        given = self.tool_choice or "auto"
        return given if isinstance(given, str) else str(given.chosen)

    @property
    def is_parallel(self) -> bool:
        """See CallsTools."""
        return self.parallel_tool_calls is not False


class NamedFunction(Inner):
    """A function by its name."""

    name: str


class NamedChoice(Inner):
    """The function that is called."""

    type: Literal["function"]
    function: NamedFunction

    @property
    def chosen(self) -> str:
        """Its name."""
        return self.function.name


class CalledFunction(Inner):
    """What was called, and with what: the text of a JSON object."""

    name: str
    arguments: str = "{}"


class MadeCall(Body):
    """A call that the assistant made."""

    ACCEPTED: ClassVar[Mapping[str, Any]] = {"index": ANY}
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Body):
    """A message of a chat. Its parts are one message.

    tool_calls: of the assistant, which then may say nothing. tool_call_id: of a tool's message.
    """

    ACCEPTED: ClassVar[Mapping[str, Any]] = {
        "name": ANY,  # which no model's template reads
        "function_call": NOTHING,
        "refusal": NOTHING,
        "audio": NOTHING,
        "annotations": NONE_OF,
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


_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
}


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
        role, first = _ROLES[message.role], len(spans)
        spans += (Span(text, role) for text in message.texts)
        for call in message.tool_calls or ():
            names[call.id] = call.function.name
            given = arguments_of(call.function.arguments, "messages.tool_calls.function.arguments")
            spans.append(Span(ToolCall(call.id, call.function.name, given), role))
        if first < len(spans):
            spans[first] = replace(spans[first], begins=True)
    if functions:
        spans.insert(0, Span(Tools(tuple(functions)), Role.SYSTEM))
    if not any(span.content for span in spans[bool(functions) :]):
        raise bad_request("The messages contain no text.", "messages")
    return tuple(spans)
