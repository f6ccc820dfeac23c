"""Prompts over schemas as ordinary text, for backends without independent spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from relquery.markup.asked import Asked
from relquery.markup.read.imports import MarkupPrompt, New
from relquery.markup.read.parts import Message, Module, Parameter, Part, Text, Union, messages
from relquery.prompt import Prompt, Role, Span


def as_text(prompt: MarkupPrompt) -> Prompt:
    """The schema's text with what the prompt imports, in the schema's order, as messages.

    What the prompt adds stands after the import before it, or before the first import; after the
    last import it follows the whole schema. Modules and added texts are lines of their own.
    """
    asked = Asked.of(prompt.parts)
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
    parts: Sequence[Part], asked: Asked, arguments: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The texts of parts. Those that begin with a line break are lines of their own."""
    for part in parts:
        match part:
            case Text(content):
                yield content
            case Parameter(name):
                yield (arguments or {}).get(name, "")
            case Module() | Union():
                modules = part.modules if isinstance(part, Union) else (part,)
                for name in [one.name for one in modules if one.name in asked.imports]:
                    yield from (f"\n{new.content}" for new in asked.before(name))
                    yield f"\n{_imported(asked, name)}"
                    yield from (f"\n{new.content}" for new in asked.after.get(name, ()))
            case Message():
                raise AssertionError("a message stands in no module")


def _imported(asked: Asked, name: str) -> str:
    imported = asked.imports[name]
    inside = Asked.of(imported.parts)
    texts = list(_texts(imported.module.parts, inside, imported.arguments))
    return _joined([*texts, *(f"\n{new.content}" for new in inside.last)])


def _joined(texts: Iterable[str]) -> str:
    """Texts one after another, without a line break too many where one has white space already."""
    whole = ""
    for text in texts:
        is_apart = not whole or whole[-1].isspace() or text[1:2].isspace()
        whole += text[1:] if text.startswith("\n") and is_apart else text
    return whole
