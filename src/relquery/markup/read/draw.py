"""Schemas and prompts as trees, to be looked at."""

from __future__ import annotations

from relquery.markup.read.imports import Import, MarkupPrompt, New, PromptPart
from relquery.markup.read.parts import Message, Module, Parameter, Part, Text, Union
from relquery.markup.read.schema import Schema

WIDTH = 60
"""Characters of a text that are shown."""


def draw(shown: Schema | MarkupPrompt) -> str:
    """A tree, one part in each line.

    In that of a prompt, what it imports has a plus, and its own text stands where it is added.
    """
    if isinstance(shown, Schema):
        lines = [f"schema {shown.name}"]
        _add(lines, [_of_part(part) for part in shown.parts])
    else:
        lines = [f"prompt of schema {shown.schema.name}"]
        _add(lines, [_of_import(part) for part in shown.parts])
    return "\n".join(lines)


_Branch = tuple[str, list["_Branch"]]


def _add(lines: list[str], branches: list[_Branch], before: str = "") -> None:
    for number, (head, below) in enumerate(branches):
        is_last = number == len(branches) - 1
        lines.append(f"{before}{'└── ' if is_last else '├── '}{head}")
        _add(lines, below, before + ("    " if is_last else "│   "))


def _of_part(part: Part) -> _Branch:
    match part:
        case Text(content):
            return _quoted(content), []
        case Parameter(name, length):
            return f"parameter {name} ({length} tokens)", []
        case Module(name, parts, is_cached, priority):
            notes = [] if is_cached else ["not cached"]
            notes += [f"priority {priority}"] if priority else []
            said = f" ({', '.join(notes)})" if notes else ""
            return f"module {name}{said}", [_of_part(each) for each in parts]
        case Union(modules):
            return "union", [_of_part(each) for each in modules]
        case Message(role, parts):
            return role.value, [_of_part(each) for each in parts]


def _of_import(part: PromptPart) -> _Branch:
    match part:
        case Import(module, arguments, parts):
            given = "".join(f" {name}={_quoted(value)}" for name, value in arguments.items())
            return f"+ {module.name}{given}", [_of_import(each) for each in parts]
        case New(content, role):
            return f"{'' if role is None else f'{role.value} '}{_quoted(content)}", []


def _quoted(text: str) -> str:
    words = " ".join(text.split())
    return f'"{words}"' if len(words) <= WIDTH else f'"{words[: WIDTH - 3]}..."'
