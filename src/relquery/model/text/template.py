"""The text that a chat template puts around messages.

It is found by filling the template with placeholders. A template may read what messages say, as
those that trim them or that leave out earlier reasoning. So it is filled with the messages, too;
where that shows another text around them, or where there are tools, the whole text is taken. There
a special token's name in a text of the prompt is moved to a private plane, so that it stays a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, zip_longest
from typing import Any

from relquery.errors import RequestError
from relquery.model.text.tokenizer import Tokenizer
from relquery.model.text.tools import (
    Chat,
    call_form,
    check_unicode,
    described,
    has_tools,
    mapped,
    short_id,
    written,
    written_call,
)
from relquery.prompt import Message, Prompt, Reuse, Role, Span, messages
from relquery.tools import HERMES, CallForm, Function, ToolCall, ToolResult, Tools

SLOT = "\ue000{}\ue001"  # private-use characters, which no chat template contains
ANY_SLOT = re.compile(SLOT.format(r"(\d+)"))
_HIDDEN = 0x100000  # where the last private plane begins: text that is no template's own
_MOST_HIDDEN = 0xFFFF
_HIDDEN_CHARACTERS = re.compile(f"[{chr(_HIDDEN)}-{chr(_HIDDEN + _MOST_HIDDEN)}]+")
SPARE = range(_HIDDEN + 0xD800, _HIDDEN + 0xE000)
"""Of that plane, where halves of surrogate pairs would go: for texts that have its characters."""
_OF_PROMPT = re.compile(f"{ANY_SLOT.pattern}|{_HIDDEN_CHARACTERS.pattern}")
_MUST, _KEPT, _BETWEEN = range(3)
"""Placeholders: for what is more than text; where a text ends that is kept in a cache; and between
two texts, which are then tokenised apart."""
_CHANGES = (
    "The model's chat template drops, repeats or changes the text of a message. Use another "
    "template."
)
_Shape = Callable[[Chat], Chat]
_Around = tuple[list[Message], tuple[str, ...]]
"""Messages, and the text before, between and after their contents."""


@dataclass(frozen=True, slots=True)
class _Slots:
    """The text that a template puts around messages of some roles."""

    shape: _Shape
    """In which it takes them."""
    literals: tuple[str, ...]
    """Before, between and after them."""
    order: tuple[int, ...]
    """In which it says them."""


@dataclass(slots=True)
class _Placeholders:
    """Placeholders in the texts of a chat. most: the kinds above it are left out."""

    most: int
    spans: list[Span] = field(default_factory=list)
    """What they stand for."""
    kinds: list[int] = field(default_factory=list)

    def __call__(self, span: Span, kind: int) -> str:
        if kind > self.most:
            return ""
        self.spans.append(span)
        self.kinds.append(kind)
        return SLOT.format(len(self.spans) - 1)


class ChatTemplate:
    """The chat template of a tokenizer; without one, messages are paragraphs."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[tuple[Role, ...], _Slots] = {}
        names = sorted(tokenizer.special_ids, key=len, reverse=True)
        self._ours = re.compile("|".join([SLOT[0], *map(re.escape, names)]))

    @property
    def form(self) -> CallForm:
        """How the model writes calls of tools."""
        return self._derived or HERMES

    def around(self, prompt: Prompt) -> _Around:
        """The messages of a prompt, and the text before, between and after their contents.

        If the template refuses consecutive messages of one role, they are joined by a line break.
        Spans of no role have nothing around them. What an open message says stands where the
        answer would begin without it. Raises RequestError for a prompt that the template refuses,
        and for tools that are no Unicode text.
        """
        if any(span.open for span in prompt):
            return self._around_open(prompt)
        if any(span.role is Role.NONE for span in prompt):
            return [(Role.NONE, _without_template(prompt))], ("", "")
        if has_tools(prompt):
            check_unicode(prompt)
            if self._derived is None:
                return self.around(described(prompt))
            functions = [
                each
                for span in prompt
                if isinstance(span.content, Tools)
                for each in span.content.functions
            ]
            said = messages(tuple(span for span in prompt if not isinstance(span.content, Tools)))
            return self._around_texts(said, None, functions)
        said = messages(prompt)
        slots = self._slots(tuple(role for role, _ in said))
        if self._tokenizer.chat_template:
            texts = ["".join(map(_text_of, spans)) for _, spans in said]
            in_order = [texts[turn] for turn in slots.order]
            told = "".join(chain.from_iterable(zip_longest(slots.literals, in_order, fillvalue="")))
            chat = [
                {"role": role.value, "content": text}
                for (role, _), text in zip(said, texts, strict=True)
            ]
            if self._filled(chat, slots.shape) != told:
                return self._around_texts(said, slots.shape)
        return [said[turn] for turn in slots.order], slots.literals

    def _around_open(self, prompt: Prompt) -> _Around:
        """What is around the messages of a prompt whose last one the answer continues."""
        *head, (role, spans) = messages(prompt)
        is_last = spans[-1].open and not any(span.open for span in prompt[:-1])
        if role is not Role.ASSISTANT or not is_last:
            raise RequestError(
                "An open span does not end the prompt, or is not the assistant's. Only the last "
                "span of a prompt may be open, with the role ASSISTANT."
            )
        said, literals = self.around(tuple(span for _, spans in head for span in spans))
        return [*said, (role, spans)], (*literals, "")

    def _slots(self, roles: tuple[Role, ...]) -> _Slots:
        """What is around messages of these roles."""
        if roles not in self._known:
            chat = [
                {"role": role.value, "content": SLOT.format(number)}
                for number, role in enumerate(roles)
            ]
            refusal = RequestError(_CHANGES)
            for shape in _SHAPES:
                try:
                    pieces = ANY_SLOT.split(self._filled(chat, shape))
                except RequestError as error:
                    refusal = error
                    continue
                order = tuple(map(int, pieces[1::2]))
                if sorted(order) == list(range(len(roles))):
                    self._known[roles] = _Slots(shape, tuple(pieces[::2]), order)
                    break
            else:
                raise refusal
        return self._known[roles]

    def _around_texts(
        self, said: Sequence[Message], shape: _Shape | None, functions: Sequence[Function] = ()
    ) -> _Around:
        """As `around`, of a template that reads what is said, or that is told of functions.

        The template is filled with the texts as they are, but for names of special tokens. Where
        there are placeholders between them, it must say the same as without; so it is given fewer
        where it trims texts.
        """
        texts: list[str] = []

        def noted(text: str) -> str:
            texts.append(text)
            return text

        plain = self._told(said, functions, shape, noted, lambda _, kind: "" if kind else SLOT)
        odd = sorted({ord(each) for text in texts for each in _odd_characters(text)})
        if len(odd) > len(SPARE):
            raise RequestError(f"A prompt has {len(odd):,} different private-use characters.")
        spare, own = dict(zip(odd, SPARE, strict=False)), dict(zip(SPARE, odd, strict=False))

        def guarded(text: str) -> str:
            return self._ours.sub(_hide, text.translate(spare))

        for most in (_BETWEEN, _KEPT, _MUST):
            placed = _Placeholders(most)
            told = self._told(said, functions, shape, guarded, placed)
            pieces = ANY_SLOT.split(told)
            numbers = list(map(int, pieces[1::2]))
            if sorted(numbers) == list(range(len(placed.spans))):
                pieces[1::2] = ["" if placed.kinds[slot] else SLOT for slot in numbers]
                if _unhidden("".join(pieces)).translate(own) == plain:
                    return _taken_apart(told, placed.spans, own)
        raise RequestError(_CHANGES)

    def _told(
        self,
        said: Sequence[Message],
        functions: Sequence[Function],
        shape: _Shape | None,
        write: Callable[[str], str],
        place: Callable[[Span, int], str],
    ) -> str:
        """The text of a chat. write: changes texts. place: gives placeholders. shape: None for the
        first that the template takes."""
        tools = [mapped(written(each), write) for each in functions]
        chat = self._chat(said, write, place)
        if shape is not None:
            return self._filled(chat, shape, tools)
        return self._filled_somehow(chat, tools)

    def _chat(
        self,
        said: Sequence[Message],
        write: Callable[[str], str],
        place: Callable[[Span, int], str],
    ) -> Chat:
        chat: Chat = []
        for role, spans in said:
            text, calls = "", list[dict[str, Any]]()
            for number, span in enumerate(spans, 1):
                between = "" if number == len(spans) else place(Span("", role), _BETWEEN)
                end = replace(span, content="", position=None)
                kept = place(end, _KEPT) if span.keep > 0 and _is_text(span) else between
                match span.content:
                    case ToolCall(id=name):
                        calls.append(mapped(written_call(span.content, self._id(name)), write))
                    case ToolResult(id=name):
                        told = {"tool_call_id": self._id(name), "name": span.content.name}
                        mark = place(replace(span, content=""), _KEPT) if span.keep > 0 else ""
                        text = write(span.content.text) + mark
                        chat.append({"role": "tool", "content": text} | mapped(told, write))
                    case str(part) if _is_text(span):
                        if span.position is not None:
                            text += place(replace(span, content="", keep=0), _MUST)
                        text += write(part) + kept
                    case _:
                        text += place(span, _MUST)
            if role is not Role.TOOL:
                more = {"tool_calls": calls} if calls else {}
                chat.append({"role": role.value, "content": text} | more)
        return chat

    def _id(self, given: str) -> str:
        """The id of a call as the template takes it."""
        return short_id(given) if self.form.short_ids else given

    def _filled(self, chat: Chat, shape: _Shape, tools: Sequence[Any] = ()) -> str:
        """The text of a chat. Raises RequestError if the template refuses it."""
        if not self._tokenizer.chat_template:
            return "\n\n".join(message["content"] for message in chat) + "\nAnswer:"
        try:
            return self._tokenizer.render(shape(chat), tools=list(tools) or None)
        except Exception as error:  # templates may raise anything
            raise RequestError(f"The model's chat template refuses the prompt: {error}") from error

    def _filled_somehow(self, chat: Chat, tools: Sequence[Any]) -> str:
        """The same in the first shape that the template takes."""
        refusal: RequestError | None = None
        for shape in _SHAPES:
            try:
                return self._filled(chat, shape, tools)
            except RequestError as error:
                refusal = refusal or error
        assert refusal is not None
        raise refusal

    @cached_property
    def _derived(self) -> CallForm | None:
        """The form of calls; None for a template that knows no tools."""
        if not self._tokenizer.chat_template:
            return None
        return call_form(self._filled_somehow, self._tokenizer.special_ids)


def _without_template(prompt: Prompt) -> list[Span]:
    if any(span.role is not Role.NONE for span in prompt):
        raise RequestError("A prompt must not have spans with a role beside spans without one.")
    return list(prompt)


def _is_text(span: Span) -> bool:
    return isinstance(span.content, str) and span.reuse is Reuse.PREFIX


def _text_of(span: Span) -> str:
    """The text of a span; a character for what is none."""
    return str(span.content) if _is_text(span) else SLOT


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
        before = joined[-1] if joined else {"role": "tool"}
        is_plain = not ("tool_calls" in message or "tool_calls" in before)
        if is_plain and message["role"] == before["role"] != "tool":
            text = before["content"]
            line = "" if text.endswith("\n") else "\n"
            joined[-1] = before | {"content": f"{text}{line}{message['content']}"}
        else:
            joined.append(message)
    return joined


_SHAPES: tuple[_Shape, ...] = (
    lambda chat: chat,
    _system_joined,
    _neighbours_joined,
    lambda chat: _system_joined(_neighbours_joined(chat)),
)


def _taken_apart(text: str, apart: Sequence[Span], own: dict[int, int]) -> _Around:
    """What is said in the text of a chat, and what is around it. own: the characters that stand for
    others."""
    said, literals, end = list[Message](), list[str](), 0
    for match in _OF_PROMPT.finditer(text):
        literals.append(text[end : match.start()])
        is_hidden = match[1] is None
        span = Span(_unhidden(match[0]).translate(own)) if is_hidden else apart[int(match[1])]
        said.append((span.role, [span]))
        end = match.end()
    return said, (*literals, text[end:])


def _odd_characters(text: str) -> str:
    """Those of a text that are in the plane where characters are hidden."""
    return "".join(_HIDDEN_CHARACTERS.findall(text))


def _hide(found: re.Match[str]) -> str:
    """A name in the private plane, where no template looks for it, as far as it has room."""
    return "".join(
        each if ord(each) > _MOST_HIDDEN or each.isspace() else chr(ord(each) + _HIDDEN)
        for each in found[0]
    )


def _unhidden(text: str) -> str:
    """A text with the characters that were hidden as they were."""
    return _HIDDEN_CHARACTERS.sub(lambda found: "".join(map(_shown, found[0])), text)


def _shown(character: str) -> str:
    code = ord(character)
    return character if code in SPARE else chr(code - _HIDDEN)
