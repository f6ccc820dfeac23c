"""Functions that a model may call, and calls in the text of an answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from relquery.errors import ConfigError

MOST = 128
"""Functions that may be called, as in OpenAI's API."""
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Of a function, as in the APIs of providers. It needs no escape in JSON."""
_TAG = re.compile(r"<[^<>\s]+>|\[[A-Z_]+\]")
_OUTSIDE = re.compile(r'[][{}"]')
_IN_STRING = re.compile(r'[\\"]')


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a model may call. Raises ConfigError for a name that none may have."""

    name: str
    description: str | None = None
    parameters: str = '{"type": "object", "properties": {}}'
    """The text of the JSON Schema of its arguments, which are an object."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ConfigError(
                f"A function is named {self.name[:80]!r}; a name has 1 to 64 letters, digits, "
                "underscores and hyphens."
            )


@dataclass(frozen=True, slots=True)
class Tools:
    """The content of a span that says which functions there are: the first of a prompt."""

    functions: tuple[Function, ...]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The content of an assistant's span: a call that it made."""

    id: str
    name: str
    arguments: str
    """The text of a JSON object."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The content of a tool's span: what a call returned."""

    id: str
    """Of the call."""
    name: str
    """Of the function; "" where it is not known."""
    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The functions that an answer may call. Raises ConfigError for a choice that does not fit."""

    functions: tuple[Function, ...]
    choice: str = "auto"
    """"auto": text or calls. "none": text. "required": calls. Else the function that is called."""
    parallel: bool = True
    """Whether an answer may have several calls."""

    def __post_init__(self) -> None:
        names = [each.name for each in self.functions]
        if len(names) > MOST:
            raise ConfigError(f"{len(names):,} functions are given; the most is {MOST}.")
        for name, count in Counter(names).most_common(1):
            if count > 1:
                raise ConfigError(f"Two functions are named '{name}'. Give each a name of its own.")
        if not names:
            raise ConfigError("No function is given that could be called. Give tools.")
        if self.choice not in ("auto", "none", "required", *names):
            raise ConfigError(
                f"The function '{self.choice}' is to be called, and is not among the tools: "
                f"{', '.join(names)}."
            )

    @property
    def is_named(self) -> bool:
        """Whether one function must be called."""
        return self.choice not in ("auto", "none", "required")

    @property
    def callable(self) -> tuple[Function, ...]:
        """The functions that the answer may call."""
        if self.is_named:
            return tuple(each for each in self.functions if each.name == self.choice)
        return () if self.choice == "none" else self.functions


@dataclass(frozen=True, slots=True)
class CallForm:
    """The form in which a model writes calls: `head`, then calls joined by `between`, then `tail`.
    A call is `begin`, the function's name, `middle`, the arguments in JSON, and `end`."""

    head: str
    begin: str
    middle: str
    end: str
    between: str | None
    """None where the chat template knows one call at a time."""
    tail: str = ""
    short_ids: bool = False
    """Whether the chat template takes ids of nine letters and digits alone."""

    @property
    def opening(self) -> str:
        """What stands before the first name."""
        return self.head + self.begin

    @property
    def tag(self) -> str:
        """The mark with which calls begin, which no other text has; "" where an answer that begins
        as a call is one."""
        match = _TAG.match(self.opening)
        return match[0] if match else ""


HERMES = CallForm(
    head="",
    begin='<tool_call>\n{"name": "',
    middle='", "arguments": ',
    end="}\n</tool_call>",
    between="\n",
)
"""The form of NousResearch's Hermes and of Qwen, and of models whose templates know no calls."""


class Delta(NamedTuple):
    """A part of an answer: text, or the part of a call."""

    text: str = ""
    call: int | None = None
    """The number of the call, from 0; None for text."""
    name: str = ""
    """Of the function, in the first part of a call."""
    arguments: str = ""
    """The next characters of its arguments."""


@dataclass(slots=True)
class CallParser:
    """A parser of calls in the text of an answer as it comes.

    The parts of text, and those of each call's arguments, joined, are the same however the text is
    cut. What only begins as a call and goes on otherwise is text.
    """

    form: CallForm
    calls: int = 0
    """How many have begun."""
    _held: str = ""
    _state: str = "text"
    _open: list[str] = field(default_factory=list)

    def take(self, text: str) -> list[Delta]:
        """What is new with these characters."""
        self._held += text
        return list(_joined(self._read()))

    def end(self) -> list[Delta]:
        """What is left when the answer ends: text that was held back because calls may begin so.
        Of a call that was cut before its arguments there is nothing."""
        rest, self._held = self._held, ""
        is_text = self._state == "text" and not (self.form.tag and rest.startswith(self.form.tag))
        return [Delta(rest)] if rest and is_text else []

    @property
    def is_whole(self) -> bool:
        """Whether no call is open."""
        return self._state not in ("name", "arguments", "end")

    def _read(self) -> Iterator[Delta]:
        """Deltas until more characters are needed."""
        while True:
            before = (self._state, len(self._held))
            match self._state:
                case "text":
                    yield from self._text()
                case "plain":
                    yield Delta(self._all())
                case "name":
                    yield from self._name()
                case "arguments":
                    yield from self._arguments()
                case "end":
                    self._expect(self.form.end, "next")
                case "next":
                    self._next()
            if not self._held or (self._state, len(self._held)) == before:
                return

    def _text(self) -> Iterator[Delta]:
        opening, tag = self.form.opening, self.form.tag
        cut = self._held.find(tag) if tag else 0
        if cut < 0:
            cut = len(self._held) - _overlap(self._held, tag)
        if cut:
            yield Delta(self._cut(cut))
        if self._held.startswith(opening):
            self._cut(len(opening))
            self._state = "name"
        elif not opening.startswith(self._held):
            if not tag:
                self._state = "plain"  # calls begin where answers begin, or not at all
            elif self._held.startswith(tag):
                yield Delta(self._cut(len(tag)))

    def _name(self) -> Iterator[Delta]:
        name, middle, _ = self._held.partition(self.form.middle)
        if not middle:
            return
        self._cut(len(name) + len(middle))
        yield Delta(call=self.calls, name=name)
        self.calls += 1
        self._state = "arguments"

    def _arguments(self) -> Iterator[Delta]:
        """The characters of one JSON object: brackets count outside of strings."""
        start = 0
        while start < len(self._held):
            is_string = self._open[-1:] == ['"']
            match = (_IN_STRING if is_string else _OUTSIDE).search(self._held, start)
            if match is None:
                start = len(self._held)
                break
            if match[0] == "\\":
                if match.end() == len(self._held):
                    start = match.start()
                    break
                start = match.end() + 1
                continue
            start = match.end()
            if is_string or match[0] in "]}":
                self._open = self._open[:-1]
            else:
                self._open.append(match[0])
            if not self._open:
                self._state = "end" if self.form.end else "next"
                break
        if start:
            yield Delta(call=self.calls - 1, arguments=self._cut(start))

    def _next(self) -> None:
        further = None if self.form.between is None else self.form.between + self.form.begin
        if further is not None and self._held.startswith(further):
            self._cut(len(further))
            self._state = "name"
        elif self._held.startswith(self.form.tail) and self.form.tail:
            self._cut(len(self.form.tail))
            self._state = "plain"
        elif not any(each and each.startswith(self._held) for each in (further, self.form.tail)):
            self._state = "plain"

    def _expect(self, text: str, then: str) -> None:
        if self._held.startswith(text):
            self._cut(len(text))
            self._state = then
        elif not text.startswith(self._held):
            self._state = "plain"

    def _all(self) -> str:
        return self._cut(len(self._held))

    def _cut(self, count: int) -> str:
        text, self._held = self._held[:count], self._held[count:]
        return text


def _joined(deltas: Iterator[Delta]) -> Iterator[Delta]:
    """Without those that say nothing."""
    return (each for each in deltas if each != Delta())


def _overlap(text: str, tag: str) -> int:
    """How many characters at a text's end may begin a tag."""
    sizes = range(min(len(tag) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(tag[:size])), 0)
