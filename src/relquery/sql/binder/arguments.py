"""The arguments of a function, sorted by what they are: texts, fields, lists, settings, templates.

So a function can take its arguments in the orders that users of several systems write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.binder.call import (
    FIELD_NAME,
    NAMED,
    UNPACKED,
    WRITTEN,
    named_like,
    readable,
)
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Constant,
    Expression,
    Function,
    Node,
    Operator,
    Ordered,
    Parameter,
)

MODULE = "module"
"""Note on a field: whether it is written as MODULE(field)."""
BAG = "bag"
"""Note on a field: whether it is a list whose items are fields: BAG(list) or passages(...)."""
VALUE = "value"
"""Note on a parameter: its value, as Python has it."""

_MODULE, _BAG, _PROMPT = "module", "bag", "prompt"
_PASSAGE = "passage"  # the name of each of them
_SHOWN = 60
MISSING = object()
"""What an expression has instead of a Python value."""


@dataclass(frozen=True, slots=True)
class Template:
    """PROMPT('text with {0}', field, ...): its text and its fields."""

    text: str
    fields: tuple[Expression, ...]


@dataclass(slots=True)
class Arguments:
    """The arguments of one call, to be taken by what they are.

    written: the call as the user wrote it, for messages. nodes: those by position. options: those
    by name, as Python values where they are literals. is_distinct: whether DISTINCT precedes them.
    order: keys of the ORDER BY behind them.
    """

    written: str
    function: str
    nodes: list[Expression] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    is_distinct: bool = False
    order: list[Ordered] = field(default_factory=list)

    @classmethod
    def of(cls, call: Function) -> Arguments:
        """The arguments of a function. Raises QueryError for options given twice."""
        written, name = shortened(str(call.meta[WRITTEN])), call.name.lower()
        found = cls(written, name, is_distinct=call.distinct, order=call.orders)
        for argument in call.arguments:
            found._read(argument.name, argument.value)
        return found

    def _read(self, name: str, value: Expression) -> None:
        value.alias = ""  # it repeats the argument's name
        if not name:
            self.nodes.append(_field(value))
        elif name.lower() == _PROMPT:
            self.nodes.insert(0, _field(value))
        elif name.lower() in _POSITIONAL:
            self.nodes.append(_field(value))
        else:
            literal = literal_of(value)
            self._add(name, value if literal is MISSING else literal)

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


def _field(node: Expression) -> Expression:
    """An argument. MODULE(field) and BAG(field) become the field, marked as what it is."""
    if isinstance(node, Operator) and node.kind == build.UNPACK:
        (node,) = node.operands
        node.meta[UNPACKED] = True
    name = node.name.lower() if isinstance(node, Function) else ""
    if name == ours.PASSAGES:
        node.meta.setdefault(FIELD_NAME, _PASSAGE)
        node.meta[BAG] = True
    if name not in (_MODULE, _BAG) or not isinstance(node, Function):
        return node
    if len(node.arguments) != 1:
        raise QueryError(
            f"{readable(node)} must be a field of an LLM call, with one column or expression in "
            f"it: LLM('prompt', {name.upper()}(column))."
        )
    (value,) = node.values
    named_like(value, node)
    inner = _field(value)
    inner.meta[MODULE if name == _MODULE else BAG] = True
    return inner


def _template(node: Function) -> Template:
    values = node.values
    text = literal_of(values[0]) if values else None
    if not isinstance(text, str):
        raise QueryError(
            f"{shortened(readable(node))} needs a text first, e.g. PROMPT('Is {{0}} late?', "
            "column)."
        )
    return Template(text, tuple(values[1:]))


def literal_of(node: Node) -> Any:
    """The Python value of a literal: text, number, boolean, list, struct, PROMPT; else MISSING."""
    if isinstance(node, Constant):
        return _CONSTANTS[node.kind](node.text) if node.kind in _CONSTANTS else MISSING
    if isinstance(node, Parameter):
        value = node.meta.get(VALUE, MISSING)
        return tuple(value) if isinstance(value, list) else value
    if isinstance(node, Function) and not node.schema:
        read = _FUNCTIONS.get(node.name.lower())
        return MISSING if read is None else read(node)
    return MISSING


_CONSTANTS: dict[str, Callable[[str], Any]] = {
    "STRING": str,
    "INTEGER": int,
    "NUMERIC": float,
    "BOOLEAN": lambda text: text == "true",
    "NULL_LITERAL": lambda text: None,
    "HEX": str,
}


def _joined(node: Function) -> Any:
    texts = [literal_of(value) for value in node.values]
    return "".join(texts) if all(isinstance(text, str) for text in texts) else MISSING


def _negated(node: Function) -> Any:
    values = [literal_of(value) for value in node.values]
    return -values[0] if len(values) == 1 and isinstance(values[0], int | float) else MISSING


def _list(node: Function) -> Any:
    items = tuple(literal_of(value) for value in node.values)
    return MISSING if any(item is MISSING for item in items) else items


def _struct(node: Function) -> Any:
    values = {one.name: literal_of(one.value) for one in node.arguments}
    return MISSING if any(value is MISSING for value in values.values()) else values


_FUNCTIONS: dict[str, Callable[[Function], Any]] = {
    "||": _joined,
    "-": _negated,
    "list_value": _list,
    "struct_pack": _struct,
    _PROMPT: _template,
}


def shown(value: object) -> str:
    """A value for a message."""
    return readable(value) if isinstance(value, Node) else repr(value)


def shortened(written: str) -> str:
    """A call on one line, cut if it is long."""
    call = " ".join(written.split())
    return call if len(call) <= _SHOWN else f"{call[: _SHOWN - 3]}..."
