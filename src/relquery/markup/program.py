"""Schemas written as Python functions (paper 001, section 3.2.4).

The function is read, not run: its strings are the text, and its `if` and `match` the modules.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, TypeAlias, get_args, get_type_hints
from xml.sax.saxutils import escape, quoteattr

from relquery.errors import MarkupError, unknown
from relquery.markup.schema import RESERVED, SPACE, Schema


class _NoCaseError(ValueError):
    """A matched argument has a value without a case."""


@dataclass(slots=True)
class _Module:
    """A module in the making.

    parts: markup, and choices. parameters: of its own text, and the arguments that fill them.
    names: of all that is in it, which must differ.
    """

    name: str
    parts: list[str | _Choice] = field(default_factory=list)
    parameters: dict[str, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def new_name(self, text: str) -> str:
        """A name for something in it, like a text: a tag that no other part of it has."""
        plain = re.sub(r"[^\w.-]+", "-", text)
        plain = plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"
        names = chain([plain], (f"{plain}-{number}" for number in count(2)))
        name = next(each for each in names if each not in self.names and each not in RESERVED)
        self.names.add(name)
        return name


@dataclass(slots=True)
class _Choice:
    """Modules of which one is imported, or none."""

    options: list[tuple[_Test, _Module]]

    def check(self, given: Mapping[str, Any]) -> None:
        """Raises _NoCaseError if the argument has a value that matches no case."""
        cases = [test.value for test, _ in self.options if isinstance(test.value, str)]
        argument = self.options[0][0].argument
        if cases and given[argument]:
            raise _NoCaseError(unknown("case", str(given[argument]), cases, of=f"'{argument}'"))


@dataclass(frozen=True, slots=True)
class _Test:
    """A test whether an argument is true, is equal to a text, or anything at all (None)."""

    argument: str
    value: str | bool | None

    def holds(self, given: Mapping[str, Any]) -> bool:
        value = given[self.argument]
        if self.value is None:
            return True
        return bool(value) == self.value if isinstance(self.value, bool) else value == self.value


_Statements: TypeAlias = Sequence[ast.stmt]


class PromptFunction:
    """A function as a schema, and as what makes prompts over it.

    schema: with one module of the function's name that holds everything. Calling it gives the
    markup of a prompt, to be answered by `Connection.prompt`.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._signature = inspect.signature(function)
        self._whole = _read(function, self._signature)
        name = quoteattr(function.__name__)
        inside = _markup(self._whole)
        self.schema = Schema.parse(f"<schema name={name} {SPACE}='preserve'>{inside}</schema>")

    def __call__(self, *arguments: Any, text: str = "", **named: Any) -> str:
        """The markup of a prompt. text: what it adds. Raises MarkupError for other arguments.

        An argument that is matched must be one of the cases, unless there is a case for all others;
        without a value, such as None or "", it chooses none.
        """
        known = list(self._signature.parameters)
        for parameter in named:
            if parameter not in known:
                said = unknown("argument", parameter, [*known, "text"], of=f"{self.schema.name}()")
                raise MarkupError(said)
        try:
            bound = self._signature.bind(*arguments, **named)
        except TypeError as error:
            raise MarkupError(f"{self.schema.name}(): {error}.") from error
        bound.apply_defaults()
        if not isinstance(text, str):
            raise MarkupError(f"{self.schema.name}(): text is {text!r}; it must be a string.")
        try:
            inside = "".join(_import(self._whole, bound.arguments))
        except _NoCaseError as error:
            raise MarkupError(f"{self.schema.name}(): {error}") from None
        return f"<prompt schema={quoteattr(self.schema.name)}>{inside}{escape(text)}</prompt>"


def schema(function: Callable[..., Any]) -> PromptFunction:
    """Make a schema of a function; a decorator.

    A string in the function is a line of text. `{argument}` in an f-string is a parameter, whose
    length in tokens the annotation gives: `Annotated[str, 8]`. `if argument:` is a module that is
    imported if the argument is true; with `elif` and `else` it is a union, and so is
    `match argument:` with texts as cases. Raises MarkupError for anything else.
    """
    if not inspect.isfunction(function):
        raise MarkupError(f"@rq.schema is for functions that are defined with def: {function!r}.")
    return PromptFunction(function)


def _lengths(function: Callable[..., Any]) -> dict[str, int]:
    """Tokens of each argument that can be a parameter."""
    hints = get_type_hints(function, include_extras=True)
    return {
        name: extra
        for name, hint in hints.items()
        for extra in get_args(hint)[1:]
        if type(extra) is int
    }


def _read(function: Callable[..., Any], signature: inspect.Signature) -> _Module:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError) as error:
        raise MarkupError(f"The source of {function!r} cannot be read: {error}.") from error
    (definition,) = tree.body
    if not isinstance(definition, ast.FunctionDef):
        raise MarkupError("A schema is made of a function that is defined with def.")
    if "text" in signature.parameters:
        raise MarkupError(
            f"{definition.name}() has an argument named 'text', as calls have for what the prompt "
            "adds. Rename it."
        )
    reading = _Reading(definition, list(signature.parameters), _lengths(function))
    whole = _Module("")
    whole.name = whole.new_name(definition.name)
    reading.fill(whole, definition.body, begins=True)
    return whole


@dataclass(frozen=True, slots=True)
class _Reading:
    """One function being read."""

    function: ast.FunctionDef
    arguments: Sequence[str]
    lengths: Mapping[str, int]

    def fill(self, made: _Module, statements: _Statements, *, begins: bool) -> None:
        """Give a module its parts. Each string is a line; begins: whether nothing is before it."""
        for statement in statements:
            is_first = begins and not made.parts
            before = [] if is_first else ["\n"]
            match statement:
                case ast.Expr(ast.Constant(str(text))):
                    made.parts += [*before, escape(inspect.cleandoc(text))]
                case ast.Expr(ast.JoinedStr(values)):
                    made.parts += [*before, *(self._piece(value, made) for value in values)]
                case ast.If():
                    branches = self._branches(statement, made, begins=is_first)
                    made.parts.append(_Choice(list(branches)))
                case ast.Match(subject, cases):
                    argument = self._argument(subject)
                    options = [self._case(argument, case, made, begins=is_first) for case in cases]
                    made.parts.append(_Choice(options))
                case ast.Pass():
                    pass
                case _:
                    raise self._error("Only strings, if, match and pass can stand here", statement)

    def _inner(
        self, name: str, statements: _Statements, around: _Module, *, begins: bool
    ) -> _Module:
        made = _Module(around.new_name(name))
        self.fill(made, statements, begins=begins)
        return made

    def _piece(self, value: ast.expr, module: _Module) -> str:
        """A part of an f-string."""
        match value:
            case ast.Constant(str(text)):
                return escape(text)
            case ast.FormattedValue(inner, -1, None):
                argument = self._argument(inner)
                if argument not in self.lengths:
                    raise MarkupError(
                        f"The argument '{argument}' is a parameter, so it needs a length in "
                        f"tokens: {argument}: Annotated[str, 8]."
                    )
                name = module.new_name(argument)
                module.parameters[name] = argument
                return f"<param name={quoteattr(name)} len='{self.lengths[argument]}'/>"
            case _:
                raise self._error("A parameter is written as {argument} alone", value)

    def _branches(
        self, statement: ast.If, around: _Module, *, begins: bool
    ) -> Iterator[tuple[_Test, _Module]]:
        argument = self._argument(statement.test)
        made = self._inner(argument, statement.body, around, begins=begins)
        yield _Test(argument, True), made
        match statement.orelse:
            case []:
                pass
            case [ast.If() as other]:
                yield from self._branches(other, around, begins=begins)
            case rest:
                other_made = self._inner(f"no-{argument}", rest, around, begins=begins)
                yield _Test(argument, None), other_made

    def _case(
        self, argument: str, case: ast.match_case, around: _Module, *, begins: bool
    ) -> tuple[_Test, _Module]:
        if case.guard is not None:
            raise self._error("A case has no condition of its own", case.guard)
        match case.pattern:
            case ast.MatchValue(ast.Constant(str(text))):
                return _Test(argument, text), self._inner(text, case.body, around, begins=begins)
            case ast.MatchAs(None, None):
                made = self._inner(f"other-{argument}", case.body, around, begins=begins)
                return _Test(argument, None), made
            case pattern:
                raise self._error("A case is a text, or _", pattern)

    def _argument(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            raise self._error("An argument's name must stand here", node)
        if node.id not in self.arguments:
            said = unknown("argument", node.id, self.arguments, of=f"{self.function.name}()")
            raise self._error(said.rstrip("."), node)
        return node.id

    def _error(self, message: str, node: Any) -> MarkupError:
        return MarkupError(f"{message} (line {node.lineno} of {self.function.name}()).")


def _markup(module: _Module) -> str:
    """The definition of a module."""
    inside = []
    for part in module.parts:
        if isinstance(part, str):
            inside.append(part)
            continue
        options = [_markup(option) for _, option in part.options]
        inside.append(options[0] if len(options) == 1 else f"<union>{''.join(options)}</union>")
    return f"<module name={quoteattr(module.name)}>{''.join(inside)}</module>"


def _import(module: _Module, given: Mapping[str, Any]) -> Iterator[str]:
    """The tags that import a module, and what is chosen in it."""
    filled = module.parameters.items()
    arguments = "".join(f" {name}={quoteattr(str(given[value]))}" for name, value in filled)
    yield f"<{module.name}{arguments}>"
    for part in module.parts:
        if isinstance(part, _Choice):
            chosen = next((option for test, option in part.options if test.holds(given)), None)
            if chosen is not None:
                yield from _import(chosen, given)
            else:
                part.check(given)
    yield f"</{module.name}>"
