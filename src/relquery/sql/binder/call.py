"""A call in a tree: what is asked, and its fields. Every function that calls a model becomes one.

    AI_FILTER('Is it late?', message)  =>  a call with labels Yes and No, compared with 'Yes'

Before that, a function such as AI_FILTER is a function of DuckDB's tree whose name is ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

import pyarrow as pa

from relquery.config import Nulls, PromptForm, QueryConfig
from relquery.errors import QueryError
from relquery.prompt import Compared, Sampling
from relquery.sql import names as ours
from relquery.sql.parser import build, tree
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tokens import closing, tokenize
from relquery.sql.parser.tree import Expression, FunctionCall, Node, _Arg
from relquery.sql.types.shape import Output

Kind = Literal["row", "score", "group", "match", "redact"]
SYMMETRIC, BY_LABELS = PAIRS = ("symmetric", "labels")
"""What may be said of the two fields of a call."""

_PLAIN_NAME = re.compile(r'[^\s",:](?:[^",:\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*[^\s",:])?')
_dump = json.JSONEncoder(ensure_ascii=False).encode


def label_of(name: str) -> str:
    """The name of a field as sent before its value: as JSON if characters in it end a name."""
    return name if _PLAIN_NAME.fullmatch(name) else json_in_line(name)


def json_in_line(text: str) -> str:
    """A text as JSON in one line."""
    # JSON keeps some characters that end a line for many readers.
    return re.sub("[\x7f-\x9f\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", _dump(text))


@dataclass(frozen=True, slots=True)
class Worded:
    """A text of a prompt that each form words in its own way."""

    json: str
    text: str

    @classmethod
    def name(cls, name: str) -> Worded:
        """The name of a field, as it stands in the data."""
        return cls(f'"{name}"', label_of(name))


Query = tuple[str | int | Worded, ...]
"""The text of a prompt; a number stands for the text of that field."""


@dataclass(frozen=True, slots=True)
class Task:
    """The question of a call, and the form of its answers."""

    query: Query
    """The prompt's text. Fields that have no place in it are sent as data after it, in any
    order."""
    sampling: Sampling = field(default_factory=Sampling)
    output: Output | None = None
    """The type of the answers; None for text."""
    kind: Kind = "row"
    """"row": one answer for the fields. "score": the probability of the first label, or the mean of
    labels that are numbers. "group": one answer for the list that the field holds, which may take
    several calls. "match": whether two rows match, one of each side; a call decides about one row
    and many of the other side. "redact": the personal data of the field, which is then replaced in
    it."""
    retry: bool = False
    """Whether an invalid answer is asked for once more, with the reason."""
    sides: tuple[int, ...] = ()
    """With "match", the side that each field is of, 0 or 1; known once the call is planned."""
    form: PromptForm | None = None
    """How fields are written."""
    nulls: Nulls | None = None
    """What is done where all are NULL (see QueryConfig); None for the connection's default. See
    in_form."""
    is_by_row: bool = False
    """Whether the first field is the prompt, and no data."""
    redact: tuple[str, ...] | None = None
    """The kinds of personal data that are not sent; None for the connection's."""
    model: str | None = None
    """The name of the model that is asked; None for that of the connection."""
    cascade: tuple[tuple[str, Any], ...] = ()
    """The settings of a CascadeConfig that the call gives, as pairs."""
    function: str = field(default="llm", compare=False, repr=False)
    """The name as the user wrote it, in lower case."""
    pairs: tuple[str, ...] = ()
    """What is said of its two fields: "symmetric" if they may change places, so that they are sent
    in one order; "labels" if a label of each may decide, see executor.pairs."""

    @property
    def sent(self) -> tuple[str | int, ...]:
        """The query in the words of the form. A line after no words begins the prompt."""
        words: list[str | int] = []
        for piece in self.query:
            part = getattr(piece, self.form or "json") if isinstance(piece, Worded) else piece
            if isinstance(part, int) or not words or isinstance(words[-1], int):
                words.append(part)
            else:  # neighbouring texts are one, so that equal prompts are equal tasks
                is_first = words[-1] == "" and isinstance(self.query[0], Worded)
                words[-1] += part.removeprefix("\n") if is_first else part
        return tuple(words)

    @property
    def prompt(self) -> str:
        """The prompt to show; `{0}` stands for the first field."""
        return "".join(part if isinstance(part, str) else f"{{{part}}}" for part in self.sent)

    @property
    def asks(self) -> object:
        """Equal for tasks with the same requests for the same fields."""
        kind = "row" if self.kind == "score" else self.kind
        valid = str(self.output) if self.retry else ""
        how = self.form, self.nulls, self.is_by_row, self.redact, self.model, self.cascade
        return self.sent, self.sampling, kind, how, self.sides, valid, self.is_by_labels

    @property
    def is_text(self) -> bool:
        """Whether its value is a text, though the model answers in JSON."""
        return self.kind in ("match", "redact")

    @property
    def is_symmetric(self) -> bool:
        """Whether its two fields may change places."""
        return SYMMETRIC in self.pairs

    @property
    def is_by_labels(self) -> bool:
        """Whether a label of each of its two fields may decide."""
        return BY_LABELS in self.pairs

    @property
    def has_places(self) -> bool:
        """Whether fields have a place in the prompt's text."""
        return any(isinstance(part, int) for part in self.query)

    @property
    def transport(self) -> pa.DataType:
        """The Arrow type that keeps the values of answers until DuckDB reads them."""
        if self.output is None or self.is_text:
            return pa.large_string()
        return self.output.transport

    def in_form(self, default: QueryConfig) -> Task:
        """The task as it is sent: as the call says, or else by default.

        In other forms than JSON, where labels are not weighed, it is left to the prompt to tell
        them if it names them all.
        """
        form: PromptForm = "json" if self.kind == "match" else self.form or default.form
        redact = default.redact if self.redact is None else self.redact
        if self.kind == "redact":
            redact = tuple(dict.fromkeys((*redact, *default.redact)))
        sampling = self.sampling
        if redact and self.kind == "match":
            raise QueryError(
                "classify := true asks about many rows at once, in which equal placeholders would "
                "stand for different persons. Remove classify, or redact."
            )
        if redact and isinstance(sampling, Compared):  # the data is not in what the model says
            sampling = sampling.whole
        nulls = self.nulls or default.nulls
        task = replace(self, sampling=sampling, form=form, nulls=nulls, redact=redact)
        if form == "json" or not sampling.labels or sampling.scored:
            return task
        told = names_all(task.sent, sampling.labels)
        return replace(task, sampling=replace(sampling, told=told))


def names_all(query: Iterable[str | int], labels: Iterable[str]) -> bool:
    """Whether the text of a query has all of some labels, in capital or small letters."""
    text = "".join(part for part in query if isinstance(part, str)).lower()
    return all(label.lower() in text for label in labels)


T = TypeVar("T")

# Notes on nodes; see Node.meta.
FIELD_NAME = "field name"
"""The name that the model sees for what replaced a name."""
NAMED = "named"
"""Whether `name := value` gives a field its name."""
MODULE, BAG = "module", "bag"
"""Whether a field is written as MODULE(field); whether it is a list whose items are fields:
BAG(list) or passages(...)."""
WRITTEN = "written"
"""A function that calls a model, or what stands for it, as the user wrote it."""
NUMBER = "number"
"""Of such a function, its place in the statement."""
OF_BRANCH = "of a branch"
"""Whether a comparison was moved into a branch of a set operation, where it may be about the values
of the other branch."""
RANKS = "ranks"
"""Whether an expression is AI_RANK of a row."""


_MOST_WORDS = 4
"""Words of the name of an expression."""
_SYNTAX = ("row", "list_value", "struct_pack", "if", "llm")
_IN_WORDS = {"count_star": "count"}


class _Note(Generic[T]):
    """A note on a call, read as an attribute."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __get__(self, call: Node, owner: type) -> T:
        value: T = call.meta[self.key]
        return value


class Call(Expression, kind="CALL", type="CALL"):
    """A call. task: what is asked. number: its place in the statement. written: as the user wrote
    it, its name in lower case like those of DuckDB's functions. fields: in their order. modules,
    bags: which of them are one, by their place.
    """

    arguments: _Arg[list[tree.Argument]] = _Arg("fields", [])
    task = _Note[Task]("task")
    number = _Note[int](NUMBER)
    written = _Note[str]("text")
    modules = _Note[frozenset[int]]("modules")
    bags = _Note[frozenset[int]]("bags")

    @classmethod
    def of(cls, task: Task, fields: Sequence[Expression], function: Node) -> Call:
        """A call in the place of a function."""
        made = cls(task=repr(task), fields=[tree.Argument(expression=field) for field in fields])
        made.meta = {"task": task, NUMBER: function.meta[NUMBER], "text": function.meta[WRITTEN]}
        for key, note in (("modules", MODULE), ("bags", BAG)):
            made.meta[key] = frozenset(
                index for index, field in enumerate(fields) if field.meta.get(note)
            )
        return made

    @property
    def fields(self) -> list[Expression]:
        """Its fields."""
        return [argument.value for argument in self.arguments]


def is_asking(node: Node) -> bool:
    """Whether a node is one of the functions that call a model, as the user writes them."""
    return (
        isinstance(node, FunctionCall) and not node.schema and node.name.lower() in ours.FUNCTIONS
    )


def asking_in(node: Node) -> Iterator[FunctionCall]:
    """These functions in a tree, outer before inner."""
    return (call for call in node.find_all(FunctionCall) if is_asking(call))


def calls_in(node: Node) -> Iterator[Call]:
    """The calls in a tree, outer before inner."""
    return node.find_all(Call)


def has_call(node: Node | None) -> bool:
    """Whether a tree contains a call."""
    return node is not None and any(isinstance(inner, Call) for inner in node.walk())


def calls_directly(select: tree.Select) -> bool:
    """Whether a SELECT has a call that is not in a query inside it."""
    return any(call.ancestor(tree.Select) is select for call in calls_in(select))


def named_like(put: Node, node: Node) -> None:
    """Give what is put in the place of a field the name that the field was given."""
    put.meta.update({key: node.meta[key] for key in (FIELD_NAME, NAMED) if key in node.meta})


def readable(node: Node) -> str:
    """An expression for people to read: calls and columns have their own names again."""
    return _bare(readable_all([node])[0])


def readable_all(nodes: Iterable[Node]) -> list[str]:
    """The same for several."""
    texts: dict[str, str] = {}

    def place(text: str) -> tree.Column:
        name = f"{ours.PREFIX}{len(texts)}_"
        texts[name] = text
        return build.column(name)

    def change(node: Node) -> Node | None:
        if WRITTEN in node.meta:
            return place(str(node.meta[WRITTEN]))
        if isinstance(node, Call):
            return place("LLM(...)")
        is_ours = isinstance(node, tree.Column) and node.name.startswith(ours.PREFIX)
        return place(str(node.meta[FIELD_NAME])) if is_ours and FIELD_NAME in node.meta else None

    printed = parser().print([node.rebuilt(change) for node in nodes])
    for name, text in reversed(texts.items()):
        printed = [line.replace(name, text) for line in printed]
    return printed


def _bare(text: str) -> str:
    """A text without parentheses around all of it."""
    tokens = tokenize(text)
    is_whole = tokens and tokens[0].text == "(" and closing(tokens, 0) == len(tokens) - 1
    return text[tokens[0].end : tokens[-1].start] if is_whole else text


def makes_items(star: tree.Star) -> bool:
    """Whether a star in an expression makes an item of the select list for each of its columns."""
    return star.is_columns or not isinstance(star.parent, tree.Argument)


def field_name(node: Node) -> str:
    """What the model reads as the name of an expression: it is made of the columns and functions in
    it, never its text.

    upper(title)  =>  upper_title          price * 2  =>  price          count(*)  =>  count
    """
    if isinstance(node, tree.Column):
        return node.name
    words = list(dict.fromkeys(_words(node)))[:_MOST_WORDS]
    return "_".join(words) or "value"


def _words(node: Node) -> Iterator[str]:
    if isinstance(node, tree.Column):
        yield node.name
    elif isinstance(node, Call):
        yield "llm"
    elif not isinstance(node, tree.Constant | tree.Type | tree.Star):
        if isinstance(node, FunctionCall):
            name = node.name.lower()
            if node.catalog:
                yield node.schema
            if not node.is_operator and name not in _SYNTAX:
                yield _IN_WORDS.get(name, name)
        for child in node.children():
            yield from _words(child)
