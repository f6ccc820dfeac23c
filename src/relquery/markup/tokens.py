"""The text of prompts over schemas, and its tokens as a backend's chat template gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from relquery.arrays import TokenIds
from relquery.backends.base import Backend
from relquery.errors import MarkupError
from relquery.markup.imports import MarkupPrompt, New, PromptContents
from relquery.markup.schema import (
    LooseText,
    Message,
    Module,
    ModuleParameter,
    Part,
    Schema,
    Union,
    messages,
)
from relquery.prompt import Prompt, Reuse, Role, Span


def as_text(prompt: MarkupPrompt) -> Prompt:
    """The schema's text with what the prompt imports, in the schema's order, as messages.

    What the prompt adds stands after the import before it, or before the first import; after the
    last import it follows the whole schema. Modules and added texts are lines of their own.
    """
    asked = PromptContents.of(prompt.parts)
    said = [
        (message.role, list(_texts(message.parts, asked)))
        for message in messages(prompt.schema.parts)
    ]
    is_open = bool(said) and said[-1][0] is Role.USER
    for role, texts in trailing(asked.last, is_open=is_open):
        if role is None:
            said[-1][1].extend(f"\n{text}" for text in texts)
        else:
            said.append((role, texts))
    return tuple(Span(_joined(texts), role, begins=True) for role, texts in said)


def trailing(added: Sequence[New], *, is_open: bool) -> list[tuple[Role | None, list[str]]]:
    """The messages that a prompt adds behind its schema: who says them, and their texts.

    is_open: whether the schema's last message is the user's; then the first may go on with it, and
    its role is None.
    """
    said: list[tuple[Role | None, list[str]]] = []
    for new in added:
        if new.role is not None:
            said.append((new.role, [new.content]))
            is_open = False
        elif said and is_open:
            said[-1][1].append(new.content)
        else:
            said.append((None if is_open else Role.USER, [new.content]))
            is_open = True
    return said


def _texts(
    parts: Sequence[Part], asked: PromptContents, arguments: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The texts of parts. Those that begin with a line break are lines of their own."""
    for part in parts:
        match part:
            case LooseText(content):
                yield content
            case ModuleParameter(name):
                yield (arguments or {}).get(name, "")
            case Module() | Union():
                modules = part.modules if isinstance(part, Union) else (part,)
                for name in [module.name for module in modules if module.name in asked.imports]:
                    yield from (f"\n{new.content}" for new in asked.before(name))
                    yield f"\n{_imported(asked, name)}"
                    yield from (f"\n{new.content}" for new in asked.after.get(name, ()))
            case Message():
                raise AssertionError("a message stands in no module")


def _imported(asked: PromptContents, name: str) -> str:
    imported = asked.imports[name]
    inside = PromptContents.of(imported.parts)
    texts = list(_texts(imported.module.parts, inside, imported.arguments))
    return _joined([*texts, *(f"\n{new.content}" for new in inside.last)])


def _joined(texts: Iterable[str]) -> str:
    """Texts one after another, without a line break too many where one has white space already."""
    whole = ""
    for text in texts:
        is_apart = not whole or whole[-1].isspace() or text[1:2].isspace()
        whole += text[1:] if text.startswith("\n") and is_apart else text
    return whole


Ids: TypeAlias = "tuple[int, ...]"
Group: TypeAlias = "tuple[Module | Union, ...]"
"""Modules and unions with nothing between them."""


@dataclass(frozen=True, slots=True)
class SchemaFrame:
    """A schema's own text: an empty independent span stands for each group of modules.

    is_open: whether it ends with what the user says, so that a prompt may go on there.
    """

    spans: Prompt
    groups: tuple[Group, ...]
    is_open: bool

    @classmethod
    def of(cls, schema: Schema) -> SchemaFrame:
        """A schema's frame."""
        spans: list[Span] = []
        groups: list[list[Module | Union]] = []
        said = messages(schema.parts)
        for message in said:
            spans += _spans(message, groups)
        is_open = bool(said) and said[-1].role is Role.USER
        return cls(tuple(spans), tuple(map(tuple, groups)), is_open)


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A schema's own text with the chat template.

    runs: token ids before each group of modules, and after the last. tail: of what a prompt adds
    behind the schema, up to where the answer begins.
    """

    runs: tuple[Ids, ...]
    tail: Ids


@dataclass(slots=True)
class TokenizedTexts:
    """The tokens of texts for one backend, each tokenised once."""

    backend: Backend
    _lengths: dict[str, int] = field(default_factory=dict)

    def lengths(self, texts: Iterable[str]) -> dict[str, int]:
        """Tokens of each text, all of them tokenised together if they are new."""
        new = [text for text in dict.fromkeys(texts) if text not in self._lengths]
        self._lengths.update(zip(new, map(len, self._apart(new)), strict=True))
        return self._lengths

    def ids(self, texts: Sequence[str]) -> list[Ids]:
        """Token ids of each text, tokenised by itself."""
        return list(map(_ids, self._apart(texts)))

    def skeleton(self, frame: SchemaFrame, added: Sequence[New] = ()) -> Skeleton:
        """A schema's own text, followed by what a prompt adds after its last import."""
        role = frame.spans[-1].role if frame.spans else Role.USER
        spans = [*frame.spans, Span((), role, Reuse.INDEPENDENT)]  # the schema ends here
        for new_role, texts in trailing(added, is_open=frame.is_open):
            spans.append(Span("".join(texts), new_role or role, begins=new_role is not None))
        *runs, tail = map(_ids, self._runs(tuple(spans)))
        return Skeleton(tuple(runs), tail)

    def _apart(self, texts: Sequence[str]) -> list[TokenIds]:
        """Token ids (n,) of each text, tokenised by itself."""
        between = Span((), Role.NONE, Reuse.INDEPENDENT)
        spans = chain.from_iterable((Span(text, Role.NONE), between) for text in texts)
        return self._runs(tuple(spans))[: len(texts)]

    def _runs(self, prompt: Prompt) -> list[TokenIds]:
        if not prompt:
            return []
        runs = self.backend.insight.runs(prompt)
        if runs is None:
            raise MarkupError(
                f"Modules need the local engine; '{self.backend.name}' is served elsewhere."
            )
        return runs


def _ids(run: TokenIds) -> Ids:
    return tuple(run.tolist())


def _spans(message: Message, groups: list[list[Module | Union]]) -> list[Span]:
    """A message's own text, and an empty independent span for each group of modules in it."""
    spans: list[Span] = []
    for part in message.parts:
        begins = not spans
        if isinstance(part, LooseText):
            spans.append(Span(part.content, message.role, begins=begins))
        elif isinstance(part, Module | Union):
            if begins or spans[-1].reuse is Reuse.PREFIX:
                spans.append(Span((), message.role, Reuse.INDEPENDENT, begins=begins))
                groups.append([])
            groups[-1].append(part)
    return spans or [Span("", message.role, begins=True)]
