"""Tools in chats: as templates read them, as text for templates that know none, and how a template
writes calls."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from relquery.errors import RequestError
from relquery.prompt import Prompt, Role, Span
from relquery.tools import CallForm, Function, ToolCall, ToolResult, Tools

Chat = list[dict[str, Any]]
"""Messages as templates read them."""
Fill = Callable[[Chat, Sequence[Any]], str]
"""The text of a chat with tools. Raises RequestError if the template refuses it."""
_NAMES = ("first_name", "second_name", "third_name")
_IDS = ("aaaaaaaa1", "aaaaaaaa2", "aaaaaaaa3")
_ARGUMENTS = '{"p": 1}'
_CALL = re.compile(rf"({'|'.join(_NAMES)})(.+?){re.escape(_ARGUMENTS)}", re.DOTALL)
_ID = re.compile(r', "id": "aaaaaaaa[1-3]"')
_ANSWER = "\ue000"
_SHORT_ID = re.compile("[a-zA-Z0-9]{9}")
_ABOUT = (
    "You may call functions. These are their signatures, in JSON:\n<tools>\n{}\n</tools>\n\n"
    "To call one, answer with its name and its arguments:\n"
    '<tool_call>\n{{"name": "NAME", "arguments": {{"KEY": VALUE}}}}\n</tool_call>'
)
_RESULT = "<tool_response>\n{}\n</tool_response>"


def has_tools(prompt: Prompt) -> bool:
    """Whether a prompt has functions, calls or results in it."""
    return any(isinstance(span.content, Tools | ToolCall | ToolResult) for span in prompt)


def described(prompt: Prompt) -> Prompt:
    """A prompt with tools as text of messages that any template knows."""
    functions = [
        json.dumps(written(each), ensure_ascii=False)
        for span in prompt
        if isinstance(span.content, Tools)
        for each in span.content.functions
    ]
    about = _ABOUT.format("\n".join(functions))
    said = [span for span in prompt if not isinstance(span.content, Tools)]
    head = 0
    while head < len(said) and said[head].role is Role.SYSTEM:
        head += 1
    shown = said[:head]
    if functions:
        shown.append(Span(f"\n\n{about}" if head else about, Role.SYSTEM))
    for before, span in pairwise([None, *said[head:]]):
        assert span is not None
        goes_on = before is not None and not span.begins and before.role is span.role
        match span.content:
            case ToolCall(name=name, arguments=arguments):
                content = json.dumps({"name": name, "arguments": json.loads(arguments)},
                                     ensure_ascii=False)  # fmt: skip
                text = f"<tool_call>\n{content}\n</tool_call>"
                shown.append(Span(f"\n{text}" if goes_on else text, Role.ASSISTANT))
            case ToolResult(text=text):
                follows = before is not None and before.role in (Role.TOOL, Role.USER)
                told = ("\n" if follows else "") + _RESULT.format(text)
                shown.append(Span(told, Role.USER, keep=span.keep, keep_for=span.keep_for))
            case str(text) if before is not None and before.role is Role.TOOL:
                lead = "\n" if span.role is Role.USER else ""
                shown.append(Span(lead + text, span.role, keep=span.keep, keep_for=span.keep_for))
            case _:
                shown.append(span)
    return tuple(shown)


def call_form(fill: Fill, special: Iterable[str]) -> CallForm | None:
    """How a template writes calls, read off the text of probes; None for one that knows no tools,
    or that writes calls in another way than names and JSON. special: names of special tokens."""
    with suppress(RequestError):
        single, many = _probe(fill, 1), None
        with suppress(RequestError):  # where it refuses several, there is one at a time
            many = _probe(fill, 3)
        return _form_of(single, many, special) if single else None
    return None


def _probe(fill: Fill, count: int) -> str | None:
    """A chat with so many calls, from where the turn of the assistant begins; None if the template
    leaves the tools or the calls out."""
    named = list(zip(_IDS[:count], _NAMES, strict=False))
    calls = [written_call(ToolCall(each, name, _ARGUMENTS), each) for each, name in named]
    results = [
        {"role": "tool", "content": "x", "tool_call_id": each, "name": name} for each, name in named
    ]
    begin = {"role": "user", "content": "x"}
    end: Chat = [{"role": "assistant", "content": "x"}, begin]
    answered: Chat = [{"role": "assistant", "content": _ANSWER}, begin]
    said: Chat = [{"role": "assistant", "content": "", "tool_calls": calls}, *results]
    tools = [written(Function("known", "x"))]
    texts = [fill([begin, *each, *end], tools) for each in (said, answered)]
    if not all("known" in text for text in texts):
        return None
    return texts[0][len(_shared(*texts)) :]


def _form_of(one: str, many: str | None, special: Iterable[str]) -> CallForm | None:
    """The form of calls in texts with one call and with three; None if they have no such form."""
    call = _CALL.search(one)
    if call is None:
        return None
    opening, middle, after = one[: call.start()], call[2], one[call.end() :]
    ends = [after.find(each) for each in special if each in after]
    closing = after[: min(ends, default=0)]
    told = _ID.match(closing)
    if told is not None:
        closing, many = closing[told.end() :], many and _ID.sub("", many)
    lead = opening[: len(opening) - len(opening.lstrip())]
    opening = opening[len(lead) :]
    form = CallForm("", opening, middle, closing, None, "", told is not None)
    if many is not None and len(matches := list(_CALL.finditer(many))) == len(_NAMES):
        first, second, _ = matches
        joint = many[first.end() : second.start()]
        begin = _shared(opening[::-1], joint[::-1])[::-1]
        between = joint[: len(joint) - len(begin)]
        end = _shared(between, closing)
        head = opening[: len(opening) - len(begin)]
        between, tail = between[len(end) :], closing[len(end) :]
        form = CallForm(head, begin, middle, end, between, tail, form.short_ids)
        calls = [f"{begin}{name}{middle}{_ARGUMENTS}{end}" for name in _NAMES]
        if not many.startswith(lead + head + between.join(calls) + tail):
            return None
    begins = form.tag or opening.startswith("{")
    return form if begins and ends and _IDS[0] not in form.opening + middle else None


def _shared(one: str, other: str) -> str:
    """The beginning that two texts have in common."""
    pairs = enumerate(zip(one, other, strict=False))
    most = next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
    return one[:most]


def written(function: Function) -> dict[str, Any]:
    """A function as templates read it."""
    about = {} if function.description is None else {"description": function.description}
    told = {"name": function.name, **about, "parameters": json.loads(function.parameters)}
    return {"type": "function", "function": told}


def check_unicode(prompt: Prompt) -> None:
    """JSON may write halves of characters with escapes."""
    for span in prompt:
        told: Any = ""
        match span.content:
            case Tools(functions):
                told = list(map(written, functions))
            case ToolCall() as call:
                told = written_call(call, call.id)
            case ToolResult(id, name, text):
                told = [id, name, text]
        try:
            json.dumps(told, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"A function, call or result is not Unicode text: {error}."
            ) from error


def written_call(call: ToolCall, name: str) -> dict[str, Any]:
    told = {"name": call.name, "arguments": json.loads(call.arguments)}
    return {"type": "function", "id": name, "function": told}


def short_id(given: str) -> str:
    """An id of a call of nine letters and digits, as some templates want it."""
    if _SHORT_ID.fullmatch(given):
        return given
    return hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:9]


def mapped(value: Any, change: Any) -> Any:
    """A value of JSON with its texts changed."""
    match value:
        case str():
            return change(value)
        case list():
            return [mapped(each, change) for each in value]
        case dict():
            return {change(key): mapped(each, change) for key, each in value.items()}
    return value
