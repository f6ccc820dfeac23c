"""The text of a prompt, and the fields that it names.

AI_FILTER('Does {review} complain?')              the field review, wherever it is sent
AI_FILTER(PROMPT('Does {0} complain?', review))   the field in its place in the text
LLM(question, passage)                            the prompt is the value of a column
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from relquery.errors import QueryError
from relquery.sql.binder.arguments import (
    MISSING,
    MODULE,
    Arguments,
    Template,
    literal_of,
    shown,
)
from relquery.sql.binder.call import FIELD_NAME
from relquery.sql.binder.naming import field_name
from relquery.sql.binder.task import Query, Worded
from relquery.sql.parser import build
from relquery.sql.parser.tree import Column, Constant, Expression

_NAME = r'(?:[^\W\d]\w*|"(?:[^"{}]|"")+")'
_INSIDE = rf"{_NAME}(?:\.{_NAME})?|\d+"
_PLACE = re.compile(rf"\{{\{{({_INSIDE})\}}\}}|\{{[ ]?({_INSIDE})[ ]?\}}")

Knows = Callable[[Column], bool]
"""Whether the FROM clauses around a call have a column."""


@dataclass(frozen=True, slots=True)
class Asked:
    """query: see Task. fields: those given and those named in the text. notes: warnings.

    is_by_row: whether the first field is the prompt.
    """

    query: Query
    fields: tuple[Expression, ...]
    notes: tuple[str, ...] = ()
    is_by_row: bool = False

    def followed_by(self, text: str) -> Asked:
        """The same, with another line at the end of the text."""
        *before, last = self.query
        if isinstance(last, str):
            return replace(self, query=(*before, f"{last}\n{text}"))
        is_line = isinstance(last, Worded) and last.json.endswith("\n")
        return replace(self, query=(*self.query, text if is_line else f"\n{text}"))


def take_prompt(given: Arguments, knows: Knows) -> Asked:
    """Take the prompt and all fields of a call whose first argument is the prompt."""
    if not given.nodes:
        raise QueryError(f"{given.written} has no prompt. Expected {_example(given)}.")
    if given.nodes[0].meta.get(MODULE):
        raise QueryError(
            f"MODULE(...) must be a field of an LLM call, not its prompt: {_example(given)}."
        )
    first = given.take_first(str, Template)
    if first is None:  # the order of other functions: LLM(column, 'prompt')
        first = given.take(str) or given.take(Template)
    if isinstance(first, Template):
        return _of_template(first, given)
    if isinstance(first, str):
        return of_text(first, given.nodes, knows, given.written)
    _check_is_text(given)
    return Asked((0,), tuple(given.nodes), is_by_row=True)


def of_text(text: str, fields: list[Expression], knows: Knows, written: str) -> Asked:
    """A prompt that is sent before its fields. Names in braces become fields if they can be."""
    fields = list(fields)
    quoted = fields or [build.text(text)]
    notes = [
        _quoted_note(written, one.text)
        for one in quoted
        if isinstance(one, Constant) and _is_quoted(one, knows)
    ]
    shown = _shown(fields)
    known = {
        name.lower(): own
        for one, own in reversed(list(zip(fields, shown, strict=True)))
        for name in (*_names(one), own)
    }

    def named(found: re.Match[str]) -> str | Worded:
        if found[1] is not None:  # {{name}} is {name} in the prompt
            return f"{{{found[1]}}}"
        name = found[2]
        if name.isdigit():
            if int(name) < len(shown):
                return Worded.name(shown[int(name)])
        else:
            column = _column(name)
            plain = ".".join(_parts(name))
            if plain.lower() in known:
                return Worded.name(known[plain.lower()])
            if knows(column):
                column.meta[FIELD_NAME] = known[plain.lower()] = plain
                fields.append(column)
                return Worded.name(plain)
        notes.append(_unknown_note(written, name))
        return found[0]

    query = _with_places(text, named)
    return Asked(query, tuple(fields), tuple(notes))


def _with_places(text: str, found: Callable[[re.Match[str]], str | Worded]) -> Query:
    """A text with something else in its places."""
    parts: list[str | Worded] = []
    end = 0
    for place in _PLACE.finditer(text):
        parts += [text[end : place.start()], found(place)]
        end = place.end()
    parts.append(text[end:])
    joined: list[str | Worded] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return tuple(joined) or ("",)


def _unknown_note(written: str, name: str) -> str:
    return (
        f"The prompt of {written} contains {{{name}}}, but no field or column has that name. It is "
        f"sent as text. To send it without this warning, write {{{{{name}}}}}."
    )


def _is_quoted(given: Constant, knows: Knows) -> bool:
    """Whether an argument is a text that is the name of a column."""
    is_name = given.kind == "STRING" and re.fullmatch(_NAME, given.text) is not None
    return is_name and knows(_column(given.text))


def _quoted_note(written: str, name: str) -> str:
    return (
        f"{written} has the text {name!r}, which is also the name of a column. To send the column, "
        f"write {name} without single quotes."
    )


def _of_template(template: Template, given: Arguments) -> Asked:
    if given.nodes:
        raise QueryError(
            f"{given.written} has fields after PROMPT(...). Give them inside of it, each with its "
            "place in the text: PROMPT('... {0} ...', column)."
        )
    named = (name for _, name in _PLACE.findall(template.text) if name and not name.isdigit())
    notes = [_unknown_note(given.written, name) for name in named]
    parts: list[str | int] = []
    end = 0
    for found in re.finditer(r"\{(\d+)\}", template.text):
        if int(found[1]) >= len(template.fields):
            raise QueryError(
                f"PROMPT in {given.written} has {found[0]}, but {len(template.fields)} fields. "
                "They are counted from 0."
            )
        parts += [template.text[end : found.start()], int(found[1])]
        end = found.end()
    parts.append(template.text[end:])
    query = tuple(part for part in parts if part != "")
    return Asked(query, template.fields, tuple(notes))


def _check_is_text(given: Arguments) -> None:
    """Raises QueryError if the prompt is a number or a list, or was meant as text."""
    node = given.nodes[0]
    message = f"The prompt of {given.written} is {shown(node)}; it must be text: {_example(given)}."
    if literal_of(node) is not MISSING:
        raise QueryError(message)
    if isinstance(node, Column) and " " in node.name:
        raise QueryError(f"{message} SQL strings use single quotes; double quotes name a column.")


def _example(given: Arguments) -> str:
    return f"{given.function.upper()}('prompt', column, ...)"


def _shown(fields: list[Expression]) -> list[str]:
    """The names of fields as the model sees them: with the table, where two have one name."""
    names = [str(field.meta.get(FIELD_NAME) or field_name(field)) for field in fields]
    return [
        f"{field.table}.{name}"
        if names.count(name) > 1 and isinstance(field, Column) and field.table
        else name
        for field, name in zip(fields, names, strict=True)
    ]


def _names(field: Expression) -> Iterator[str]:
    """The names that may mean a field in a prompt, beside its own."""
    if isinstance(field, Column):
        yield field.name
        if field.table:
            yield f"{field.table}.{field.name}"


def _parts(name: str) -> list[str]:
    """`a` and `odd.name` of `a."odd.name"`."""
    found = re.findall(_NAME, name)
    return [part[1:-1].replace('""', '"') if part[0] == '"' else part for part in found]


def _column(name: str) -> Column:
    *table, column = _parts(name)
    return build.column(column, *table)
