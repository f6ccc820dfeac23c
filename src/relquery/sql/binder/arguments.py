"""The arguments of a function that calls a model: texts, fields, lists, options, templates.

They are taken by what they are, so a function has them in the orders of several systems.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from relquery.config import CASCADE, FORMS, NULLS
from relquery.errors import ConfigError, QueryError, unknown
from relquery.pii.patterns import KINDS, kinds_of
from relquery.prompt import Sampling
from relquery.sql import names as ours
from relquery.sql.binder.call import (
    BAG,
    FIELD_NAME,
    MODULE,
    NAMED,
    WRITTEN,
    Call,
    Kind,
    Query,
    Task,
    Worded,
    named_like,
    readable,
)
from relquery.sql.host.database import Database
from relquery.sql.parser import build, tree
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Expression, Node
from relquery.sql.types.shape import Output

VALUE = "value"
"""Note on a parameter: its value, as Python has it."""
MISSING = object()
"""What an expression has instead of a Python value."""

_PROMPT = "prompt"
_PASSAGE = "passage"  # the name of each of them
_SHOWN = 60
_FLAG, _WHOLE = ((bool,), "true or false"), ((int,), "a whole number")
_NUMBER, _TEXT = ((int, float), "a number"), ((str,), "a text")
_SAMPLED: dict[str, tuple[tuple[type, ...], str]] = {
    "max_tokens": _WHOLE,
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "top_k": _WHOLE,
    "seed": _WHOLE,
}
OF_ALL = (*_SAMPLED, "stop", "form", "nulls", "redact", "model")
"""Options of all functions."""
_OPTIONS = _SAMPLED | {
    "form": ((str,), "'json' or 'text'"),
    "nulls": ((str,), "'skip' or 'ask'"),
    "retry": _FLAG,
    "classify": _FLAG,
    "multi": _FLAG,
    "instruction": _TEXT,
    "model": _TEXT,
    "threshold": _NUMBER,
    "proxy": _TEXT,
    **dict.fromkeys(CASCADE[1:], _NUMBER),
}
_CHOICES: dict[str, tuple[str, ...]] = {"form": FORMS, "nulls": NULLS}
# Arguments that other systems name and we have by position.
_POSITIONAL = ("", "text", "input", "expr")
# Names that other systems have for an option.
_SYNONYMS = {
    "task_description": "instruction",
    "response_format": "output",
    "responseformat": "output",
    "categories": "labels",
}
_NAMES_OF_OPTIONS = {
    *_OPTIONS,
    *_SYNONYMS,
    *("stop", "labels", "pairs", "output", "redact", "output_mode", "model_parameters"),
}
"""Other names, if their values are no literals, are those of fields: total := price * 2."""
_LABELS = "labels := ['Yes', 'No']."


@dataclass(slots=True)
class LlmFunction:
    """A function that calls a model, on its way to become a call.

    node: the function as written. defaults: sampling for calls that set nothing. knows: whether a
    FROM clause around it has a column. is_aggregate: whether a function is an aggregate.
    own_options: names of options that not all functions have. nodes: the arguments by position.
    options: those by name, as Python values where they are literals. notes: warnings. query,
    fields: what the call asks, see Task, and about what. is_by_row: whether the first field is the
    prompt.
    """

    node: tree.FunctionCall
    database: Database
    defaults: Sampling
    knows: Callable[[tree.Column], bool]
    is_aggregate: Callable[[tree.FunctionCall], bool]
    own_options: tuple[str, ...]
    nodes: list[Expression] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    query: Query = ()
    fields: Sequence[Expression] = ()
    is_by_row: bool = False

    def __post_init__(self) -> None:
        for argument in self.node.arguments:
            name, value = argument.name.lower(), argument.value
            value.alias = ""  # it repeats the argument's name
            if name == _PROMPT:
                self.nodes.insert(0, _field(value))
            elif name in _POSITIONAL:
                self.nodes.append(_field(value))
            elif (literal := literal_of(value)) is not MISSING:
                self.set_option(name, literal)
            elif name in _NAMES_OF_OPTIONS:
                self.set_option(name, value)
            else:
                value.meta.update({FIELD_NAME: argument.name, NAMED: True})
                self.nodes.append(_field(value))

    @property
    def name(self) -> str:
        """In lower case."""
        return self.node.name.lower()

    @property
    def written(self) -> str:
        """As the user wrote it, for messages."""
        return shortened(str(self.node.meta[WRITTEN]))

    def set_option(self, name: str, value: object) -> None:
        """Set an option. Raises QueryError if it is set already."""
        name = _SYNONYMS.get(name.lower(), name.lower())
        if name in self.options:
            raise QueryError(f"{self.written} sets {name} twice. Set it once.")
        self.options[name] = value

    def take_config(self) -> None:
        """Turn a struct of settings, as Snowflake has it, into options."""
        parameters = self.options.pop("model_parameters", None) or {}
        for name, value in ((self.take(dict) or {}) | parameters).items():
            self.set_option(name, value)

    def take(self, kind: type[Any]) -> Any:
        """Take the first argument without a name whose value is of a type; else None."""
        for index, node in enumerate(self.nodes):
            if NAMED not in node.meta and isinstance(value := literal_of(node), kind):
                del self.nodes[index]
                return value
        return None

    def option(self, name: str, default: Any = None) -> Any:
        """Take an option. Raises QueryError unless its value has its type."""
        value = self.options.pop(name, MISSING)
        if value is MISSING:
            return default
        kinds, expected = _OPTIONS[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise QueryError(f"{name} of {self.written} is {shown(value)}; expected {expected}.")
        if value not in _CHOICES.get(name, (value,)):
            raise QueryError(f"{self.written}: " + unknown(name, value, _CHOICES[name]))
        return value

    def sampling(self) -> Sampling:
        """Take what says how answers are drawn. Labels are the function's business."""
        given = {name: self.option(name) for name in _SAMPLED if name in self.options}
        if "stop" in self.options:
            given["stop"] = self._texts("stop")
        return replace(self.defaults, **given)

    def cascade(self) -> tuple[tuple[str, Any], ...]:
        """Take the settings of a cascade."""
        return tuple((name, self.option(name)) for name in CASCADE if name in self.options)

    def pairs(self, *known: str) -> tuple[str, ...]:
        """Take what is said of the two texts of a pair."""
        names = self._texts("pairs") if "pairs" in self.options else ()
        for name in names:
            if name not in known:
                raise QueryError(f"{self.written}: " + unknown("pairs", name, known))
        return names

    def labels(self) -> tuple[str, ...] | None:
        """Take the labels; None if none are set. Raises QueryError for an empty list."""
        if "labels" not in self.options:
            return None
        value = self.options["labels"]
        if isinstance(value, str):
            raise QueryError(f"labels of {self.written} is {value!r}; it must be a list: {_LABELS}")
        if isinstance(value, tuple | list):
            self.options["labels"] = [
                str(label) if type(label) is int else label for label in value
            ]
        given = self._texts("labels")
        if not given:
            raise QueryError(f"{self.written} has no labels. Give at least one text: {_LABELS}")
        return given

    def redacted(self) -> tuple[str, ...] | None:
        """Take the kinds of personal data that are not sent; None if the call does not say."""
        value = self.options.pop("redact", None)
        if isinstance(value, Node):
            raise QueryError(
                f"redact of {self.written} is {shown(value)}; expected true, false, or a list of "
                "kinds, e.g. ['NAME', 'EMAIL']."
            )
        return None if value is None else self.kinds(value)

    def kinds(self, value: object, known: Sequence[str] = KINDS) -> tuple[str, ...]:
        """Kinds of personal data by their names. Raises QueryError."""
        try:
            return kinds_of(value, known)
        except ConfigError as error:
            raise QueryError(f"{self.written}: {error}") from error

    def _texts(self, name: str) -> tuple[str, ...]:
        value = self.options.pop(name)
        texts = (value,) if isinstance(value, str) else value
        if not isinstance(texts, tuple | list) or not all(isinstance(text, str) for text in texts):
            raise QueryError(
                f"{name} of {self.written} is {shown(value)}; expected a string or a list of "
                "strings, e.g. ['Yes', 'No']."
            )
        return tuple(texts)

    def add_line(self, text: str, shorter: str | None = None) -> None:
        """Put another line at the end of the prompt's text. shorter: what the form text says."""
        line = f"\n{text}"
        added = line if shorter is None else Worded(line, f"\n{shorter}")
        self.query = (*self.query, added)

    def call(
        self,
        sampling: Sampling,
        output: Output | None = None,
        kind: Kind = "row",
        *,
        retry: bool = False,
        redact: tuple[str, ...] = (),
        cascade: tuple[tuple[str, Any], ...] = (),
        pairs: tuple[str, ...] = (),
    ) -> Expression:
        """The call in the place of the function, once all else is taken: a text, or a value of the
        output's type. redact: kinds of personal data that are never sent. Raises QueryError for
        options and fields that it cannot have."""
        form, nulls, model = (self.option(name) for name in ("form", "nulls", "model"))
        hidden = self.redacted()
        for name in self.options:
            known = (*OF_ALL, *self.own_options)
            raise QueryError(f"{self.written}: " + unknown("option", name, known))
        if kind == "match" and form not in (None, "json"):
            raise QueryError(
                f"form is {form!r}, but a call with classify := true is sent as JSON, in which the "
                "candidates have their numbers. Remove form or classify."
            )
        by_row = self.is_by_row
        if redact:
            hidden = tuple(dict.fromkeys((*redact, *(hidden or ()))))
        how = form, nulls, by_row, hidden, model, cascade, self.name
        task = Task(self.query, sampling, output, kind, retry, (), *how, pairs)
        call = Call.of(task, self.fields, self.node)
        for index in call.bags:
            if kind == "match" or index in task.query:
                raise no_bag(self.fields[index])
        value: Expression = call
        if self.is_by_row:  # without a prompt there is no answer
            given = build.operation(build.IS_NOT_NULL, self.fields[0].copy())
            value = build.when(given, value)
        if output is None or task.is_text:
            return value
        return build.cast(value, parser().type(output.kind))


def no_bag(field: Expression) -> QueryError:
    """The error for a bag where there can be none."""
    return QueryError(
        f"{readable(field)} is a bag, whose items can be sent in any order. Bags must be fields of "
        "a call about one row: LLM('prompt', BAG(list)). Elsewhere, join the items into one text: "
        "array_to_string(list, ' ')."
    )


def _field(node: Expression) -> Expression:
    """An argument. MODULE(field) and BAG(field) become the field, marked as what it is."""
    name = node.name.lower() if isinstance(node, tree.FunctionCall) else ""
    if name == ours.PASSAGES:
        node.meta.setdefault(FIELD_NAME, _PASSAGE)
        node.meta[BAG] = True
    if name not in (MODULE, BAG) or not isinstance(node, tree.FunctionCall):
        return node
    if len(node.arguments) != 1:
        raise QueryError(
            f"{readable(node)} must be a field of an LLM call, with one column or expression in "
            f"it: LLM('prompt', {name.upper()}(column))."
        )
    (value,) = node.values
    named_like(value, node)
    inner = _field(value)
    inner.meta[name] = True
    return inner


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """PROMPT('text with {0}', field, ...): its text and its fields."""

    text: str
    fields: tuple[Expression, ...]


def literal_of(node: Node) -> Any:
    """The Python value of a literal: text, number, boolean, list, struct, PROMPT; else MISSING."""
    if isinstance(node, tree.Constant):
        return _CONSTANTS[node.kind](node.text) if node.kind in _CONSTANTS else MISSING
    if isinstance(node, tree.Parameter):
        value = node.meta.get(VALUE, MISSING)
        return tuple(value) if isinstance(value, list) else value
    if not isinstance(node, tree.FunctionCall) or node.schema:
        return MISSING
    return _template(node) if node.name.lower() == _PROMPT else _computed(node)


_LITERALS = ("list_value", "struct_pack", "||", "-")
_CONSTANTS: dict[str, Callable[[str], Any]] = {
    "STRING": str,
    "INTEGER": int,
    "NUMERIC": float,
    "BOOLEAN": lambda text: text == "true",
    "NULL_LITERAL": lambda text: None,
    "HEX": str,
}


def _computed(node: tree.FunctionCall) -> Any:
    """The value of a list, a struct, a joined text or a negative number of literals."""
    name = node.name.lower()
    values = [literal_of(item) for item in node.values] if name in _LITERALS else [MISSING]
    if any(value is MISSING for value in values):
        return MISSING
    if name == "list_value":
        return tuple(values)
    if name == "struct_pack":
        return dict(zip((argument.name for argument in node.arguments), values, strict=True))
    if name == "||":
        texts = [value for value in values if isinstance(value, str)]
        return "".join(texts) if len(texts) == len(values) else MISSING
    return -values[0] if len(values) == 1 and isinstance(values[0], int | float) else MISSING


def _template(node: tree.FunctionCall) -> PromptTemplate:
    values = node.values
    text = literal_of(values[0]) if values else None
    if not isinstance(text, str):
        raise QueryError(
            f"{shortened(readable(node))} needs a text first, e.g. PROMPT('Is {{0}} late?', "
            "column)."
        )
    return PromptTemplate(text, tuple(values[1:]))


def shown(value: object) -> str:
    """A value for a message."""
    return readable(value) if isinstance(value, Node) else repr(value)


def shortened(written: str) -> str:
    """A call on one line, cut if it is long."""
    call = " ".join(written.split())
    return call if len(call) <= _SHOWN else f"{call[: _SHOWN - 3]}..."
