"""A call in a tree: what is asked, and its fields. Every function that calls a model becomes one.

Before that, a function such as AI_FILTER is a function of DuckDB's tree whose name is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from relquery.sql import names as ours
from relquery.sql.binder.task import Task
from relquery.sql.parser import build, tree
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tokens import closing, tokenize
from relquery.sql.parser.tree import Expression, Function, Node, _Arg

T = TypeVar("T")

# Notes on nodes; see Node.meta.
FIELD_NAME = "field name"
"""The name that the model sees for what replaced a name."""
NAMED = "named"
"""Whether AS gives an argument its name: then it is a field, even if it is a text."""
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
UNPACKED = "unpacked"
"""Whether a star is `*COLUMNS(...)`: its columns are fields of one call, not of a call each."""
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
        found: T = call.meta[self.key]
        return found


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
        made = cls(task=repr(task), fields=[tree.Argument(expression=one) for one in fields])
        made.meta = {"task": task, NUMBER: function.meta[NUMBER], "text": function.meta[WRITTEN]}
        for key, note in (("modules", MODULE), ("bags", BAG)):
            made.meta[key] = frozenset(at for at, one in enumerate(fields) if one.meta.get(note))
        return made

    @property
    def fields(self) -> list[Expression]:
        """Its fields."""
        return [one.value for one in self.arguments]


def is_asking(node: Node) -> bool:
    """Whether a node is one of the functions that call a model, as the user writes them."""
    return isinstance(node, Function) and not node.schema and node.name.lower() in ours.FUNCTIONS


def asking_in(node: Node) -> Iterator[Function]:
    """These functions in a tree, outer before inner."""
    return (one for one in node.find_all(Function) if is_asking(one))


def calls_in(node: Node) -> Iterator[Call]:
    """The calls in a tree, outer before inner."""
    return node.find_all(Call)


def has_call(node: Node | None) -> bool:
    """Whether a tree contains a call."""
    return node is not None and any(isinstance(one, Call) for one in node.walk())


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
        if isinstance(node, tree.Column):
            if node.name.startswith(ours.PREFIX) and FIELD_NAME in node.meta:
                return place(str(node.meta[FIELD_NAME]))
            if node.names[0] == ours.OUTER:
                return build.column(*reversed(node.names[1:]))
        return None

    printed = parser().print([node.rebuilt(change) for node in nodes])
    for name, text in reversed(texts.items()):
        printed = [one.replace(name, text) for one in printed]
    return printed


def _bare(text: str) -> str:
    """A text without parentheses around all of it."""
    tokens = tokenize(text)
    is_whole = tokens and tokens[0].text == "(" and closing(tokens, 0) == len(tokens) - 1
    return text[tokens[0].end : tokens[-1].start] if is_whole else text


def makes_items(star: tree.Star) -> bool:
    """Whether a star in an expression makes an item of the select list for each of its columns."""
    is_argument = isinstance(star.parent, tree.Argument) and not star.is_columns
    return not is_argument and UNPACKED not in star.meta


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
        if isinstance(node, Function):
            name = node.name.lower()
            if node.catalog:
                yield node.schema
            if not node.is_operator and name not in _SYNTAX:
                yield _IN_WORDS.get(name, name)
        for child in node.children():
            yield from _words(child)
