"""Schemas written as Python functions (paper 001, section 3.2.4).

The function is read, not run: its strings are the text, and its `if` and `match` the modules.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, get_args, get_type_hints
from xml.sax.saxutils import escape, quoteattr

from relquery.errors import MarkupError, unknown
from relquery.markup.read.schema import Schema


@dataclass(slots=True)
class _Module:
    """A module in the making. parts: markup, and choices. arguments: of its own text."""

    name: str
    parts: list[str | _Choice] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Choice:
    """Modules of which one is imported, or none. argument: whose value says which."""

    options: list[tuple[_Test, _Module]]


@dataclass(frozen=True, slots=True)
class _Test:
    """Whether an argument is true, is equal to a text, or anything at all (None)."""

    argument: str
    value: str | bool | None

    def holds(self, given: Mapping[str, Any]) -> bool:
        found = given[self.argument]
        if self.value is None:
            return True
        return bool(found) == self.value if isinstance(self.value, bool) else found == self.value


_Statements: TypeAlias = Sequence[ast.stmt]


class PromptFunction:
    """A function as a schema, and as what makes prompts over it.

    schema: with one module of the function's name that holds everything. Calling it gives the
    markup of a prompt, to be answered by `Connection.prompt`.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._signature = inspect.signature(function)
        self._whole = _read(function, self._signature)
        inside = _markup(self._whole, _lengths(function))
        name = function.__name__
        self.schema = Schema.parse(f"<schema name={quoteattr(name)}>\n{inside}\n</schema>")

    def __call__(self, *arguments: Any, text: str = "", **named: Any) -> str:
        """The markup of a prompt. text: what it adds. Raises MarkupError for other arguments."""
        try:
            bound = self._signature.bind(*arguments, **named)
        except TypeError as error:
            raise MarkupError(f"{self.schema.name}(): {error}.") from error
        bound.apply_defaults()
        if not isinstance(text, str):
            raise MarkupError(f"{self.schema.name}(): text is {text!r}; it must be a string.")
        inside = "".join(_import(self._whole, bound.arguments))
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
    return _Reading(definition, list(signature.parameters)).module(definition.name, definition.body)


@dataclass(frozen=True, slots=True)
class _Reading:
    """One function being read."""

    function: ast.FunctionDef
    arguments: Sequence[str]

    def module(self, name: str, statements: _Statements) -> _Module:
        made = _Module(name)
        for statement in statements:
            before = ["\n"] if made.parts and isinstance(made.parts[-1], str) else []
            match statement:
                case ast.Expr(ast.Constant(str(text))):
                    made.parts += [*before, escape(inspect.cleandoc(text))]
                case ast.Expr(ast.JoinedStr(values)):
                    made.parts += [*before, *(self._piece(value, made) for value in values)]
                case ast.If():
                    made.parts.append(_Choice(list(self._branches(statement))))
                case ast.Match(subject, cases):
                    argument = self._argument(subject)
                    made.parts.append(_Choice([self._case(argument, one) for one in cases]))
                case ast.Pass():
                    pass
                case _:
                    raise self._error("Only strings, if, match and pass can stand here", statement)
        return made

    def _piece(self, value: ast.expr, module: _Module) -> str:
        """A part of an f-string. A parameter's length is filled in later."""
        match value:
            case ast.Constant(str(text)):
                return escape(text)
            case ast.FormattedValue(inner, -1, None):
                argument = self._argument(inner)
                module.arguments.append(argument)
                return f"<param name={quoteattr(argument)}/>"
            case _:
                raise self._error("A parameter is written as {argument} alone", value)

    def _branches(self, statement: ast.If) -> Iterator[tuple[_Test, _Module]]:
        argument = self._argument(statement.test)
        yield _Test(argument, True), self.module(argument, statement.body)
        match statement.orelse:
            case []:
                pass
            case [ast.If() as other]:
                yield from self._branches(other)
            case rest:
                yield _Test(argument, None), self.module(f"no-{argument}", rest)

    def _case(self, argument: str, case: ast.match_case) -> tuple[_Test, _Module]:
        if case.guard is not None:
            raise self._error("A case has no condition of its own", case.guard)
        match case.pattern:
            case ast.MatchValue(ast.Constant(str(text))):
                return _Test(argument, text), self.module(text, case.body)
            case ast.MatchAs(None, None):
                return _Test(argument, None), self.module(f"other-{argument}", case.body)
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


def _markup(module: _Module, lengths: Mapping[str, int]) -> str:
    """The definition of a module. Raises MarkupError for a parameter without length."""
    for argument in module.arguments:
        if argument not in lengths:
            raise MarkupError(
                f"The argument '{argument}' is a parameter, so it needs a length in tokens: "
                f"{argument}: Annotated[str, 8]."
            )
    inside = []
    for part in module.parts:
        if isinstance(part, str):
            inside.append(part)
            continue
        options = [_markup(option, lengths) for _, option in part.options]
        inside.append(options[0] if len(options) == 1 else f"<union>{''.join(options)}</union>")
    text = "".join(inside)
    for argument in module.arguments:
        name = f"<param name={quoteattr(argument)}"
        text = text.replace(f"{name}/>", f"{name} len='{lengths[argument]}'/>")
    return f"<module name={quoteattr(module.name)}>{text}</module>"


def _import(module: _Module, given: Mapping[str, Any]) -> Iterator[str]:
    """The tags that import a module, and what is chosen in it."""
    named = dict.fromkeys(module.arguments)
    arguments = "".join(f" {name}={quoteattr(str(given[name]))}" for name in named)
    yield f"<{module.name}{arguments}>"
    for part in module.parts:
        if isinstance(part, _Choice):
            chosen = next((option for test, option in part.options if test.holds(given)), None)
            if chosen is not None:
                yield from _import(chosen, given)
    yield f"</{module.name}>"
