"""Requests of Anthropic's API: messages, cache breakpoints, and how answers are chosen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from relquery.prompt import Prompt, Role, Sampling, Span
from relquery.serve import bodies
from relquery.serve.batches.store import Files
from relquery.serve.errors import bad_request, not_supported, refusing
from relquery.tools import Function, ToolCall, ToolResult, Tools, ToolUse

MOST_BREAKPOINTS = 4
KEPT = {"5m": (1, 300.0), "1h": (2, 3600.0)}
"""Span.keep and Span.keep_for of what a breakpoint ends: what is kept for longer is kept before the
rest when the cache is full."""


class CacheControl(bodies.Inner):
    """A cache breakpoint: the prompt up to the end of its block is kept."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class TextBlock(bodies.Body):
    """Text, of which several may make up a message."""

    type: Literal["text"]
    text: bodies.Label
    cache_control: CacheControl | None = None


class ToolUseBlock(bodies.Body):
    """A call that the assistant made."""

    ACCEPTED: ClassVar = {"caller": ({"type": "direct"},)}
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    cache_control: CacheControl | None = None


class ToolResultBlock(bodies.Inner):
    """The result of a call. is_error: models are told so by what it says."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[TextBlock] = ""
    is_error: bool | None = None
    cache_control: CacheControl | None = None

    @property
    def text(self) -> str:
        """All of it."""
        said = self.content
        return said if isinstance(said, str) else "\n".join(block.text for block in said)


class TextSource(bodies.Inner):
    """Text of a document."""

    type: Literal["text"]
    media_type: Literal["text/plain"] = "text/plain"
    data: str


class FileSource(bodies.Inner):
    """A file of text, which was uploaded."""

    type: Literal["file"]
    file_id: str


class DocumentBlock(bodies.Body):
    """A document in a message: the model reads its title, what is said of it, and its text."""

    ACCEPTED: ClassVar = {"citations": ({"enabled": False},)}
    type: Literal["document"]
    source: Annotated[TextSource | FileSource, Field(discriminator="type")]
    title: str | None = None
    context: str | None = None
    cache_control: CacheControl | None = None

    @property
    def text(self) -> str:
        """All of it, once a file has been read."""
        assert isinstance(self.source, TextSource), "the file was not read"
        parts = (self.title, self.context, self.source.data)
        return "".join(f"{each.removesuffix(chr(10))}\n" for each in parts if each)


AnyBlock = TextBlock | DocumentBlock | ToolUseBlock | ToolResultBlock
Block = Annotated[AnyBlock, Field(discriminator="type")]
Content = str | Annotated[list[Block], Field(min_length=1)]
System = str | list[TextBlock]


def blocks_of(content: str | Sequence[AnyBlock]) -> list[AnyBlock]:
    """Content as blocks: a string is one. Those of an empty string are none."""
    if isinstance(content, str):
        return [TextBlock.model_construct(type="text", text=content)] if content else []
    return list(content)


def breakpoints_of(
    blocks: Sequence[AnyBlock], automatic: CacheControl | None
) -> list[CacheControl | None]:
    """The breakpoint of each block. automatic: the request's, for its last block.

    Raises HttpError for more of them than there may be, and for one of an hour after others.
    """
    marks, wrong = [block.cache_control for block in blocks], ""
    if automatic is not None and marks:
        if marks[-1] is not None and marks[-1] != automatic:
            wrong = "The last block has a cache_control with another ttl than the request."
        marks[-1] = automatic
    ttls = [each.ttl for each in marks if each is not None]
    if len(ttls) > MOST_BREAKPOINTS:
        wrong = f"{len(ttls)} blocks have cache_control; at most {MOST_BREAKPOINTS} may have it."
    elif ttls != sorted(ttls):  # "1h" is before "5m"
        wrong = "A cache_control with ttl 1h comes after one with ttl 5m; it must be first."
    if wrong:
        raise bad_request(wrong, "cache_control")
    return marks


class MessageParam(bodies.Inner):
    """A message. Messages of one role in a row are one turn."""

    role: Literal["user", "assistant", "system"]
    content: Content


ACCEPTED: dict[str, Any] = {
    "thinking": ({"type": "disabled"},),
    "speed": ("standard",),
    "user_profile_id": bodies.ANY,
    "workspace_id": bodies.ANY,
}


class CustomTool(bodies.Body):
    """A function that the model may call. A breakpoint on it changes nothing: tools are in front of
    what the next one keeps."""

    ACCEPTED: ClassVar = {
        "strict": bodies.ANY,
        "eager_input_streaming": bodies.ANY,
        "allowed_callers": (["direct"],),
    }
    name: str
    type: Literal["custom"] | None = None
    description: str | None = None
    input_schema: dict[str, Any]
    cache_control: CacheControl | None = None


class ToolChoice(bodies.Inner):
    """The choice whether functions are called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False

    @model_validator(mode="after")
    def _check_name(self) -> ToolChoice:
        if (self.type == "tool") != (self.name is not None):
            raise ValueError("a choice of the type tool, and no other, has a name")
        return self


class Metadata(bodies.Inner):
    """The user whom a request is for; it changes no answer."""

    user_id: str | None = None


class JsonFormat(bodies.Inner):
    """Answers are JSON that is valid under a schema."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(bodies.Body):
    """The form of the answer."""

    ACCEPTED: ClassVar = {"effort": ("high",)}
    format: JsonFormat | None = None


class Counted(bodies.Body):
    """Fields that messages and the counting of their tokens share."""

    ACCEPTED: ClassVar = ACCEPTED
    model: str
    messages: Annotated[list[MessageParam], Field(min_length=1, max_length=100_000)]
    system: System | None = None
    cache_control: CacheControl | None = None
    tools: list[CustomTool] | None = None
    tool_choice: ToolChoice | None = None
    output_config: OutputConfig | None = None
    output_format: JsonFormat | None = None

    @property
    def functions(self) -> list[Function]:
        """That may be called. Raises HttpError."""
        return [
            bodies.function_of(each.name, each.description, each.input_schema)
            for each in self.tools or ()
        ]

    @property
    def tool_use(self) -> ToolUse | None:
        """How they may be called. Raises HttpError."""
        given = self.tool_choice or ToolChoice(type="auto")
        choice = given.name or {"any": "required"}.get(given.type, given.type)
        is_parallel = not given.disable_parallel_tool_use
        return bodies.use_of(self.functions, choice, parallel=is_parallel)

    @property
    def files(self) -> list[DocumentBlock]:
        """The documents that are files, and must be read before there is a prompt."""
        blocks = (each for message in self.messages for each in blocks_of(message.content))
        documents = (each for each in blocks if isinstance(each, DocumentBlock))
        return [each for each in documents if isinstance(each.source, FileSource)]

    def read_files(self, files: Files, tenant: str) -> None:
        """Put the texts of files in their places. Waits for the disk. Raises HttpError."""
        for each in self.files:
            assert isinstance(each.source, FileSource)
            text = files.text(each.source.file_id, tenant)
            each.source = TextSource(type="text", data=text)

    @property
    def prompt(self) -> tuple[Prompt, list[str]]:
        """See prompt_of. Raises HttpError."""
        prompt, ttls = prompt_of(self.system, self.messages, self.cache_control)
        tools = (Span(Tools(tuple(self.functions)), Role.SYSTEM),) if self.tools else ()
        return (*tools, *prompt), ttls


class MessageBody(Counted):
    """A request for a message. max_tokens: 0 to compute a prompt's states and answer nothing."""

    max_tokens: bodies.Natural
    stop_sequences: Annotated[list[bodies.Label], Field(max_length=64)] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: bodies.TopP | None = None
    top_k: bodies.Natural | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    relquery: bodies.DeclaredFields | None = None


def sampling_of(body: MessageBody) -> Sampling:
    """How the answer is chosen. Raises HttpError."""
    form = None if body.output_config is None else body.output_config.format
    use = body.tool_use
    if form is not None and body.output_format is not None:
        raise bad_request(
            "output_format and output_config.format are both given; give the latter alone.",
            "output_format",
        )
    form = form or body.output_format
    if form is not None and body.stop_sequences:
        raise not_supported(
            "stop_sequences", "Answers under a schema end with their JSON; leave it out."
        )
    if use is not None and form is not None:
        raise not_supported("output_config.format", "Beside tools, leave it out.")
    needs = {"stream": body.stream, "output_config.format": form, "tools": use}
    if body.max_tokens == 0 and any(needs.values()):
        name = next(name for name, given in needs.items() if given)
        raise bad_request(f"'{name}' needs an answer; max_tokens is 0.", "max_tokens")
    with refusing():
        return Sampling(
            max_tokens=max(1, body.max_tokens),
            temperature=1.0 if body.temperature is None else body.temperature,
            top_p=1.0 if body.top_p is None else body.top_p,
            top_k=body.top_k or 0,
            stop=tuple(body.stop_sequences or ()),
            schema=None if form is None else json.dumps(form.schema_),
            tools=use,
        )


def prompt_of(
    system: System | None, messages: Sequence[MessageParam], automatic: CacheControl | None
) -> tuple[Prompt, list[str]]:
    """The prompt, and the ttl of each of its breakpoints.

    A last message of the assistant is open: the answer continues it. Raises HttpError.
    """
    turns = [(Role.SYSTEM, blocks_of(system))] if system else []
    for index, message in enumerate(messages):
        blocks = blocks_of(message.content)
        is_prefill = message.role == "assistant" and index == len(messages) - 1
        if not blocks and not is_prefill:
            raise bad_request(f"messages.{index} has no text.", "messages")
        last = blocks[-1] if blocks else None
        if is_prefill and isinstance(last, TextBlock) and last.text[-1].isspace():
            raise bad_request(
                "The last message of the assistant ends with white space, from which no answer can "
                "continue. Remove it.",
                "messages",
            )
        turns.append((Role(message.role), blocks))
    role, blocks = turns[-1]
    is_open = bool(blocks) and role is Role.ASSISTANT and isinstance(blocks[-1], TextBlock)
    return _spans(turns, automatic, is_open=is_open)


def _spans(
    turns: Sequence[tuple[Role, list[AnyBlock]]], automatic: CacheControl | None, is_open: bool
) -> tuple[Prompt, list[str]]:
    every = [each for _, blocks in turns for each in blocks]
    breakpoints = iter(breakpoints_of(every, automatic))
    spans: list[Span] = []
    ttls: list[str] = []
    names: dict[str, str] = {}
    for role, blocks in turns:
        is_said = blocks and isinstance(blocks[0], TextBlock | DocumentBlock)
        if is_said and spans and spans[-1].role is role:
            # one turn: a line break between them
            ends_line = str(spans[-1].content).endswith("\n")
            spans += [] if ends_line else [Span("\n", role)]
        for block in blocks:
            span = Span("", role)
            match block:
                case TextBlock(text=text) | DocumentBlock(text=text):
                    span = Span(text, role)
                case ToolUseBlock(id=id_, name=name, input=given):
                    names[id_] = name
                    span = Span(ToolCall(id_, name, json.dumps(given)), role)
                case ToolResultBlock(tool_use_id=id_, text=text):
                    result = ToolResult(id_, names.get(id_, ""), text)
                    span = Span(result, Role.TOOL, begins=True)
            kept = next(breakpoints)
            if kept is not None:
                ttls.append(kept.ttl)
                level, seconds = KEPT[kept.ttl]
                span = replace(span, keep=level, keep_for=seconds)
            spans.append(span)
    if is_open:
        spans[-1] = replace(spans[-1], open=True)
    return tuple(spans), ttls
