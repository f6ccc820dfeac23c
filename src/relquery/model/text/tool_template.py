"""Chats with tools: the text that a chat template makes of them, and how it writes calls.

The template is filled with the whole chat. Where a text of the prompt has a special token's name,
its first character is moved to a private plane, so that it stays a text. A template that knows no
tools gets them, calls and results as text of other messages, in the form of Hermes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from typing import Any

from relquery.errors import RequestError
from relquery.model.text.template import (
    ANY_SLOT,
    SLOT,
    SPARE,
    ChatTemplate,
    around_open,
    hide,
    odd_characters,
    taken_apart,
    unhidden,
)
from relquery.model.text.tokenizer import Tokenizer
from relquery.prompt import Message, Prompt, Role, Span, messages
from relquery.tools import HERMES, CallForm, Function, ToolCall, ToolResult, Tools

Chat = list[dict[str, Any]]
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


class ToolTemplate:
    """How a tokenizer's chat template says tools. chats: fills it where no tools are."""

    def __init__(self, tokenizer: Tokenizer, chats: ChatTemplate) -> None:
        self._tokenizer, self._chats = tokenizer, chats
        names = sorted(tokenizer.special_ids, key=len, reverse=True)
        self._ours = re.compile("|".join([_ANSWER, *map(re.escape, names)]))

    @property
    def form(self) -> CallForm:
        """How the model writes calls."""
        return self._derived or HERMES

    def around(self, prompt: Prompt) -> tuple[list[Message], tuple[str, ...]]:
        """See ChatTemplate.around. Raises RequestError for what the template refuses, and for what
        is no Unicode text."""
        _check_unicode(prompt)
        if any(span.open for span in prompt):
            return around_open(prompt, self.around)
        if self._derived is None:
            return self._chats.around(described(prompt))
        tools = [each for span in prompt if isinstance(span.content, Tools)
                 for each in span.content.functions]  # fmt: skip
        turns = messages(tuple(span for span in prompt if not isinstance(span.content, Tools)))
        texts: list[str] = []

        def noted(text: str) -> str:
            texts.append(text)
            return text

        plain = self._filled(
            self._chat(turns, None, noted), [_mapped(_written(each), noted) for each in tools]
        )
        odd = sorted({ord(each) for text in texts for each in odd_characters(text)})
        if len(odd) > len(SPARE):
            raise RequestError(f"A prompt has {len(odd):,} different private-use characters.")
        spare = dict(zip(odd, SPARE, strict=False))

        def guarded(text: str) -> str:
            return self._ours.sub(_hide_first, text.translate(spare))

        shown = [_mapped(_written(each), guarded) for each in tools]
        tries: tuple[list[Span] | None, ...] = ([], None)
        for marks in tries:
            chat = self._chat(turns, marks, guarded)
            said = self._filled(chat, shown)
            kept = marks or []
            own = dict(zip(SPARE, odd, strict=False))
            bare = unhidden(ANY_SLOT.sub("", said)).translate(own)
            if bare == plain and len(ANY_SLOT.findall(said)) == len(kept):
                return taken_apart(said, kept, (), own)
        raise RequestError(
            "The model's chat template changes the text of tools. Use another template."
        )

    def _chat(self, turns: Iterable[Message], marks: list[Span] | None, written: Any) -> Chat:
        """Messages as templates read them. marks: gets the ends of what is to be kept, for each of
        which the text has a placeholder; None for none."""
        chat: Chat = []
        for role, spans in turns:
            text, calls = "", list[dict[str, Any]]()
            for span in spans:
                match span.content:
                    case ToolCall(id=name):
                        calls.append(_mapped(_call(span.content, self._id(name)), written))
                    case ToolResult(id=name):
                        told = {"tool_call_id": self._id(name), "name": span.content.name}
                        text = written(span.content.text) + _mark(span, marks)
                        chat.append({"role": "tool", "content": text} | _mapped(told, written))
                    case str(part):
                        text += written(part) + _mark(span, marks)
                    case _:
                        raise RequestError("A chat with tools has spans that are not text.")
            if role is not Role.TOOL:
                more = {"tool_calls": calls} if calls else {}
                chat.append({"role": role.value, "content": text} | more)
        return chat

    def _id(self, given: str) -> str:
        """The id of a call as the template takes it."""
        if not self.form.short_ids or _SHORT_ID.fullmatch(given):
            return given
        return hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:9]

    def _filled(self, chat: Chat, tools: Sequence[Any]) -> str:
        """The text of a chat. Raises RequestError if the template refuses it."""
        attempts = [chat, _system_joined(chat), _neighbours_joined(_system_joined(chat))]
        error: Exception | None = None
        for attempt in attempts:
            try:
                return self._tokenizer.render(attempt, tools=list(tools) or None)
            except Exception as refusal:  # templates may raise anything
                error = error or refusal
        raise RequestError(f"The model's chat template refuses the tools: {error}") from error

    @cached_property
    def _derived(self) -> CallForm | None:
        """The form, read off the text of probes; None for a template that knows no tools, or that
        writes calls in another way than names and JSON."""
        if not self._tokenizer.chat_template:
            return None
        with suppress(RequestError):
            one, many = self._probe(1), None
            with suppress(RequestError):  # where it refuses several, there is one at a time
                many = self._probe(3)
            return _form_of(one, many, self._tokenizer.special_ids) if one else None
        return None

    def _probe(self, count: int) -> str | None:
        """A chat with so many calls, from where the turn of the assistant begins; None if the
        template leaves the tools or the calls out."""
        named = list(zip(_IDS[:count], _NAMES, strict=False))
        calls = [_call(ToolCall(each, name, _ARGUMENTS), each) for each, name in named]
        results = [
            {"role": "tool", "content": "x", "tool_call_id": each, "name": name}
            for each, name in named
        ]
        begin = {"role": "user", "content": "x"}
        end: Chat = [{"role": "assistant", "content": "x"}, begin]
        answered: Chat = [{"role": "assistant", "content": _ANSWER}, begin]
        said: Chat = [{"role": "assistant", "content": "", "tool_calls": calls}, *results]
        tools = [_written(Function("known", "x"))]
        texts = [self._filled([begin, *each, *end], tools) for each in (said, answered)]
        if not all("known" in text for text in texts):
            return None
        return texts[0][len(_shared(*texts)) :]


def described(prompt: Prompt) -> Prompt:
    """A prompt with tools as text of messages that any template knows."""
    functions = [
        json.dumps(_written(each), ensure_ascii=False)
        for span in prompt
        if isinstance(span.content, Tools)
        for each in span.content.functions
    ]
    about = _ABOUT.format("\n".join(functions))
    said = [span for span in prompt if not isinstance(span.content, Tools)]
    head = 0
    while head < len(said) and said[head].role is Role.SYSTEM:
        head += 1
    found = said[:head]
    if functions:
        found.append(Span(f"\n\n{about}" if head else about, Role.SYSTEM))
    for before, span in pairwise([None, *said[head:]]):
        assert span is not None
        goes_on = before is not None and not span.begins and before.role is span.role
        match span.content:
            case ToolCall(name=name, arguments=arguments):
                content = json.dumps({"name": name, "arguments": json.loads(arguments)},
                                     ensure_ascii=False)  # fmt: skip
                text = f"<tool_call>\n{content}\n</tool_call>"
                found.append(Span(f"\n{text}" if goes_on else text, Role.ASSISTANT))
            case ToolResult(text=text):
                follows = before is not None and before.role in (Role.TOOL, Role.USER)
                told = ("\n" if follows else "") + _RESULT.format(text)
                found.append(Span(told, Role.USER, keep=span.keep, keep_for=span.keep_for))
            case str(text) if before is not None and before.role is Role.TOOL:
                lead = "\n" if span.role is Role.USER else ""
                found.append(Span(lead + text, span.role, keep=span.keep, keep_for=span.keep_for))
            case _:
                found.append(span)
    return tuple(found)


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
    if many is not None and len(found := list(_CALL.finditer(many))) == len(_NAMES):
        first, second, _ = found
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
    most = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    return one[:most]


def _written(function: Function) -> dict[str, Any]:
    """A function as templates read it."""
    about = {} if function.description is None else {"description": function.description}
    told = {"name": function.name, **about, "parameters": json.loads(function.parameters)}
    return {"type": "function", "function": told}


def _check_unicode(prompt: Prompt) -> None:
    """JSON may write halves of characters with escapes."""
    for span in prompt:
        told: Any = ""
        match span.content:
            case Tools(functions):
                told = list(map(_written, functions))
            case ToolCall() as call:
                told = _call(call, call.id)
            case ToolResult(id, name, text):
                told = [id, name, text]
        try:
            json.dumps(told, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"A function, call or result is not Unicode text: {error}."
            ) from error


def _call(call: ToolCall, name: str) -> dict[str, Any]:
    told = {"name": call.name, "arguments": json.loads(call.arguments)}
    return {"type": "function", "id": name, "function": told}


def _mapped(value: Any, change: Any) -> Any:
    """A value of JSON with its texts changed."""
    match value:
        case str():
            return change(value)
        case list():
            return [_mapped(each, change) for each in value]
        case dict():
            return {change(key): _mapped(each, change) for key, each in value.items()}
    return value


def _mark(span: Span, marks: list[Span] | None) -> str:
    """A placeholder where what is kept ends."""
    if marks is None or span.keep <= 0:
        return ""
    marks.append(Span("", span.role, keep=span.keep, keep_for=span.keep_for))
    return SLOT.format(len(marks) - 1)


def _hide_first(found: re.Match[str]) -> str:
    return hide(found[0][0]) + found[0][1:]


def _system_joined(chat: Chat) -> Chat:
    """For templates without a system's role: its text begins the user's turn."""
    if [message["role"] for message in chat[:2]] != ["system", "user"]:
        return chat
    joined = f"{chat[0]['content']}\n\n{chat[1]['content']}"
    return [{"role": "user", "content": joined}, *chat[2:]]


def _neighbours_joined(chat: Chat) -> Chat:
    """For templates that refuse messages of one role in a row."""
    joined: Chat = []
    for message in chat:
        is_plain = joined and not ("tool_calls" in message or "tool_calls" in joined[-1])
        if is_plain and message["role"] == joined[-1]["role"] in ("user", "assistant"):
            joined[-1] = joined[-1] | {"content": f"{joined[-1]['content']}\n{message['content']}"}
        else:
            joined.append(message)
    return joined
