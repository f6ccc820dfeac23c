"""The text of a prompt, and the fields that it names.

AI_FILTER('Does {review} complain?')              the field review, wherever it is sent
AI_FILTER(PROMPT('Does {0} complain?', review))   the field in its place in the text
LLM(question, passage)                            the prompt is the value of a column
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from relquery.errors import QueryError
from relquery.sql.binder.arguments import (
    MISSING,
    LlmFunction,
    PromptTemplate,
    literal_of,
    shown,
)
from relquery.sql.binder.call import FIELD_NAME, MODULE, Query, Worded, field_name
from relquery.sql.parser import build
from relquery.sql.parser.tree import Column, Constant, Expression

_NAME = r'(?:[^\W\d]\w*|"(?:[^"{}]|"")+")'
_INSIDE = rf"{_NAME}(?:\.{_NAME})?|\d+"
_PLACE = re.compile(rf"\{{\{{({_INSIDE})\}}\}}|\{{[ ]?({_INSIDE})[ ]?\}}")
_NUMBER = re.compile(r"\{(\d+)\}")


def take_prompt(given: LlmFunction) -> None:
    """Take the prompt and all fields of a function whose first argument is the prompt."""
    example = f"{given.name.upper()}('prompt', column, ...)"
    if not given.nodes:
        raise QueryError(f"{given.written} has no prompt. Expected {example}.")
    node = given.nodes[0]
    if node.meta.get(MODULE):
        raise QueryError(f"MODULE(...) must be a field of an LLM call, not its prompt: {example}.")
    first = literal_of(node)
    if isinstance(first, str | PromptTemplate):
        del given.nodes[0]
    else:  # the order of other functions: LLM(column, 'prompt')
        first = given.take(str) or given.take(PromptTemplate)
    if isinstance(first, PromptTemplate):
        _set_template(first, given)
    elif isinstance(first, str):
        set_prompt(first, given)
    else:
        message = f"The prompt of {given.written} is {shown(node)}; it must be text: {example}."
        if literal_of(node) is not MISSING:
            raise QueryError(message)
        if isinstance(node, Column) and " " in node.name:
            quotes = "SQL strings use single quotes; double quotes name a column."
            raise QueryError(f"{message} {quotes}")
        given.query, given.fields, given.is_by_row = (0,), given.nodes, True


def set_prompt(text: str, given: LlmFunction) -> None:
    """A prompt that is sent before its fields, which are all arguments that are left. Names in
    braces become fields if they can be."""
    fields, knows = list(given.nodes), given.knows
    for field in fields or [build.text(text)]:
        if not isinstance(field, Constant) or field.kind != "STRING":
            continue
        if re.fullmatch(_NAME, field.text) and knows(_column(field.text)):
            given.notes.append(
                f"{given.written} has the text {field.text!r}, which is also the name of a column. "
                f"To send the column, write {field.text} without single quotes."
            )
    shown_names = _shown_names(fields)
    known: dict[str, str] = {}
    for field, name in zip(reversed(fields), reversed(shown_names), strict=True):
        own = [field.name, f"{field.table}.{field.name}"] if isinstance(field, Column) else []
        known.update((each.lower(), name) for each in (*own, name))

    def named(found: re.Match[str]) -> str | Worded:
        name = found[2]
        if name is None:  # {{name}} is {name} in the prompt
            return f"{{{found[1]}}}"
        if name.isdigit():
            if int(name) < len(shown_names):
                return Worded.name(shown_names[int(name)])
        else:
            column = _column(name)
            plain = ".".join(column.names)
            if plain.lower() not in known and knows(column):
                column.meta[FIELD_NAME] = known[plain.lower()] = plain
                fields.append(column)
            if plain.lower() in known:
                return Worded.name(known[plain.lower()])
        given.notes.append(_unknown_note(given, name))
        return found[0]

    given.query, given.fields = _with_places(text, _PLACE, named), fields


def _set_template(template: PromptTemplate, given: LlmFunction) -> None:
    if given.nodes:
        raise QueryError(
            f"{given.written} has fields after PROMPT(...). Give them inside of it, each with its "
            "place in the text: PROMPT('... {0} ...', column)."
        )
    for _, name in _PLACE.findall(template.text):
        if name and not name.isdigit():
            given.notes.append(_unknown_note(given, name))

    def numbered(found: re.Match[str]) -> int:
        if int(found[1]) >= len(template.fields):
            raise QueryError(
                f"PROMPT in {given.written} has {found[0]}, but {len(template.fields)} fields. "
                "They are counted from 0."
            )
        return int(found[1])

    given.query, given.fields = _with_places(template.text, _NUMBER, numbered), template.fields


def _with_places(
    text: str, pattern: re.Pattern[str], put: Callable[[re.Match[str]], str | int | Worded]
) -> Query:
    parts: list[str | int | Worded] = []
    end = 0
    for place in pattern.finditer(text):
        parts += [text[end : place.start()], put(place)]
        end = place.end()
    return tuple(part for part in (*parts, text[end:]) if part != "") or ("",)


def _unknown_note(given: LlmFunction, name: str) -> str:
    return (
        f"The prompt of {given.written} contains {{{name}}}, but no field or column has that name. "
        f"It is sent as text. To send it without this warning, write {{{{{name}}}}}."
    )


def _shown_names(fields: Sequence[Expression]) -> list[str]:
    """The names of fields as the model sees them: with the table, where two have one name."""
    names = [str(field.meta.get(FIELD_NAME) or field_name(field)) for field in fields]
    return [
        f"{field.table}.{name}"
        if names.count(name) > 1 and isinstance(field, Column) and field.table
        else name
        for field, name in zip(fields, names, strict=True)
    ]


def _column(name: str) -> Column:
    """The column that a name means, such as `a."odd.name"`."""
    parts = re.findall(_NAME, name)
    names = [part[1:-1].replace('""', '"') if part[0] == '"' else part for part in parts]
    return Column(column_names=names)
