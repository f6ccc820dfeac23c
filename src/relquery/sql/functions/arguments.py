"""The arguments of a function, sorted by what they are: texts, fields, lists, settings, templates.

So a function can take its arguments in the orders that users of several systems write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.read.source import (
    DISTINCT,
    FIELD_NAME,
    FUNCTION,
    NAMED,
    VALUE,
    named_like,
    to_sql,
)

MODULE = "module"
"""Metadata of a field: whether it is written as MODULE(field)."""

BAG = "bag"
"""Metadata of a field: whether it is a list whose items are fields: BAG(list) or passages(...)."""

_MODULE, _BAG, _PROMPT = "MODULE", "BAG", "PROMPT"
_PASSAGE = "passage"  # the name of each of them
_SHOWN = 60
MISSING = object()
"""What an expression has instead of a Python value."""


@dataclass(frozen=True, slots=True)
class Template:
    """PROMPT('text with {0}', field, ...): its text and its fields."""

    text: str
    fields: tuple[exp.Expr, ...]


@dataclass(slots=True)
class Arguments:
    """The arguments of one call, to be taken by what they are.

    written: the call as the user wrote it, for messages. nodes: those by position. options: those
    by name, as Python values where they are literals. is_distinct: whether DISTINCT precedes them.
    order: keys of the ORDER BY behind them.
    """

    written: str
    function: str
    nodes: list[exp.Expr] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    is_distinct: bool = False
    order: list[exp.Expr] | None = None

    @classmethod
    def of(cls, call: exp.Anonymous, written: str) -> Arguments:
        """The arguments of a call. Raises QueryError for options given twice."""
        found = cls(
            shortened(written), str(call.meta[FUNCTION]), is_distinct=bool(call.meta_get(DISTINCT))
        )
        for node in call.expressions:
            found._read(node)
        return found

    def _read(self, node: exp.Expr | None) -> None:
        if isinstance(node, exp.Order):
            self.order, node = node.expressions, node.this
        if node is None:  # ORDER BY without anything before it
            return
        if not isinstance(node, exp.PropertyEQ | exp.Kwarg):
            self.nodes.append(_field(node))
        elif node.this.name.lower() == "prompt":
            self.nodes.insert(0, _field(node.expression))
        elif node.this.name.lower() in _POSITIONAL:
            self.nodes.append(_field(node.expression))
        else:
            value = literal_of(node.expression)
            self._add(node.this.name, node.expression if value is MISSING else value)

    def take_config(self) -> None:
        """Turn a struct of settings, as Snowflake has it, into options."""
        parameters = self.options.pop("model_parameters", None) or {}
        for name, value in ((self.take(dict) or {}) | parameters).items():
            self._add(name, value)

    def _add(self, name: str, value: object) -> None:
        name = _SYNONYMS.get(name.lower(), name.lower())
        if name in self.options:
            raise QueryError(f"{self.written} sets {name} twice. Set it once.")
        self.options[name] = value

    def take(self, kind: type[Any]) -> Any:
        """Take the first argument without a name whose value is of a type; else None."""
        for at, node in enumerate(self.nodes):
            if NAMED not in node.meta and isinstance(value := literal_of(node), kind):
                del self.nodes[at]
                return value
        return None

    def take_first(self, *kinds: type[Any]) -> Any:
        """Take the first argument if its value is of one of some types; else None."""
        value = literal_of(self.nodes[0]) if self.nodes else MISSING
        if not isinstance(value, kinds):
            return None
        del self.nodes[0]
        return value

    def option(self, name: str, kinds: tuple[type, ...], expected: str, default: Any = None) -> Any:
        """Take an option. Raises QueryError unless its value has one of the types."""
        value = self.options.pop(name, MISSING)
        if value is MISSING:
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise QueryError(f"{name} of {self.written} is {shown(value)}; expected {expected}.")
        return value


# Arguments that other systems name and we have by position.
_POSITIONAL = ("text", "input", "expr")
# Names that other systems have for an option.
_SYNONYMS = {
    "task_description": "instruction",
    "response_format": "output",
    "responseformat": "output",
    "categories": "labels",
}


def _field(node: exp.Expr) -> exp.Expr:
    """An argument. MODULE(field) and BAG(field) become the field, marked as what it is."""
    name = node.name.upper() if isinstance(node, exp.Anonymous) else ""
    if name.lower() == ours.PASSAGES:
        node.meta.setdefault(FIELD_NAME, _PASSAGE)
        node.meta[BAG] = True
    if name not in (_MODULE, _BAG):
        return node
    if len(node.expressions) != 1:
        raise QueryError(
            f"{to_sql(node)} must be a field of an LLM call, with one column or expression in it: "
            f"LLM('prompt', {name}(column))."
        )
    named_like(node.expressions[0], node)
    inner = _field(node.expressions[0])
    inner.meta[MODULE if name == _MODULE else BAG] = True
    return inner


def _template(node: exp.Expr) -> Template:
    text = literal_of(node.expressions[0]) if node.expressions else None
    if not isinstance(text, str):
        raise QueryError(
            f"{shortened(to_sql(node))} needs a text first, e.g. PROMPT('Is {{0}} late?', column)."
        )
    return Template(text, tuple(node.expressions[1:]))


def literal_of(node: exp.Expr) -> Any:
    """The Python value of a literal: text, number, boolean, list, struct, PROMPT; else MISSING."""
    read = _LITERALS.get(type(node))
    return MISSING if read is None else read(node)


def _of_parameter(node: exp.Expr) -> Any:
    return node.meta_get(VALUE, MISSING)


def _of_literal(node: exp.Expr) -> Any:
    text = str(node.this)
    if node.is_string:
        return text
    return int(text) if text.isdigit() else float(text)


def _negated(node: exp.Expr) -> Any:
    value = literal_of(node.this)
    return -value if isinstance(value, int | float) else MISSING


def _joined(node: exp.Expr) -> Any:
    left, right = literal_of(node.this), literal_of(node.expression)
    return left + right if isinstance(left, str) and isinstance(right, str) else MISSING


def _of_array(node: exp.Expr) -> Any:
    items = tuple(map(literal_of, node.expressions))
    return MISSING if MISSING in items else items


def _of_struct(node: exp.Expr) -> Any:
    if not all(isinstance(part, exp.PropertyEQ) for part in node.expressions):
        return MISSING
    values = {part.this.name: literal_of(part.expression) for part in node.expressions}
    return MISSING if MISSING in values.values() else values


def _of_function(node: exp.Expr) -> Any:
    if node.name.upper() == _PROMPT:
        return _template(node)
    value = node.meta_get(VALUE, MISSING)  # of a parameter that has become a variable
    return tuple(value) if isinstance(value, list) else value


_LITERALS: dict[type[exp.Expr], Callable[[exp.Expr], Any]] = {
    exp.Anonymous: _of_function,
    exp.Array: _of_array,
    exp.Boolean: lambda node: bool(node.this),
    exp.ByteString: lambda node: str(node.this),
    exp.DPipe: _joined,
    exp.Literal: _of_literal,
    exp.Neg: _negated,
    exp.Null: lambda node: None,
    exp.Parameter: _of_parameter,
    exp.Paren: lambda node: literal_of(node.this),
    exp.Placeholder: _of_parameter,
    exp.RawString: lambda node: str(node.this),
    exp.Struct: _of_struct,
}


def shown(value: object) -> str:
    """A value for a message."""
    return to_sql(value) if isinstance(value, exp.Expr) else repr(value)


def shortened(written: str) -> str:
    """A call on one line, cut if it is long."""
    call = " ".join(written.split())
    return call if len(call) <= _SHOWN else f"{call[: _SHOWN - 3]}..."
