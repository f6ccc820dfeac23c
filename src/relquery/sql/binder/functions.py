"""DuckDB's functions that are aggregates, volatile, or the user's macros; and lambdas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from relquery.sql.host.catalog import ListedFunction as Listed
from relquery.sql.host.catalog import Listing
from relquery.sql.host.database import Database
from relquery.sql.parser import tree
from relquery.sql.parser.tokens import tokenize
from relquery.sql.parser.tree import Column, FunctionCall, Node, Query, Select, Window

_MAKES_ROWS = ("unnest", "unlist", "generate_subscripts")


@dataclass(frozen=True, slots=True)
class FunctionCatalog:
    """listed: the aggregates, macros and volatile functions, by lower-case name.

    macros: names of the user's macros. querying: of those that contain a subquery, or call one that
    does.
    """

    listed: Listing
    macros: frozenset[str] = frozenset()
    querying: frozenset[str] = frozenset()

    @classmethod
    def of(cls, database: Database) -> FunctionCatalog:
        """Read the lists from the database."""
        listed = database.listed_functions()
        users = [function for same in listed.values() for function in same if function.is_users]
        macros = [user for user in users if user.kind == "macro"]
        return cls(listed, frozenset(macro.name for macro in macros), _querying(macros))

    def is_volatile(self, node: Node) -> bool:
        """Whether an expression may have a different value each time it is computed."""
        return any(map(self.calls_volatile, node.walk()))

    def calls_volatile(self, node: Node) -> bool:
        """Whether a node is a call of a function such as random()."""
        same = self.listed.get(node.name.lower(), ()) if isinstance(node, FunctionCall) else ()
        return any(function.is_volatile and function.kind != "aggregate" for function in same)

    def has_query(self, node: Node) -> bool:
        """Whether an expression, or a macro that it calls, contains a subquery."""
        return any(
            isinstance(inner, Query)
            or (isinstance(inner, FunctionCall) and inner.name.lower() in self.querying)
            for inner in node.walk()
        )

    def is_aggregate(self, node: Node) -> bool:
        """Whether a node aggregates rows into one value and is not a window function."""
        if isinstance(node, Window) or not isinstance(node, FunctionCall):
            return False
        return any(
            function.kind == "aggregate" for function in self.listed.get(node.name.lower(), ())
        )

    def around(self, node: Node, top: Node) -> bool:
        """Whether a node is in an aggregate below `top`, or in its FILTER or ORDER BY."""
        below = takewhile(lambda parent: parent is not top, node.ancestors())
        return any(map(self.is_aggregate, below))

    def inside(self, node: Node) -> Iterator[Node]:
        """The aggregates in an expression, except those in subqueries."""
        return filter(self.is_aggregate, own_nodes(node))

    def has_aggregate(self, node: Node | None) -> bool:
        """Whether an expression has one, except in subqueries."""
        return node is not None and any(map(self.is_aggregate, own_nodes(node)))

    def in_select(self, select: Select) -> bool:
        """Whether a SELECT returns groups instead of rows."""
        if select.keys or select.sets or select.is_grouped_by_all or select.having is not None:
            return True
        clauses = [*select.items, select.qualify, select.order]
        return any(self.has_aggregate(node) for node in clauses)


def _querying(macros: Iterable[Listed]) -> frozenset[str]:
    """Macros with a subquery, and those that call them."""
    bodies = [
        (macro.name, {token.name.lower() for token in tokenize(str(macro.body))})
        for macro in macros
    ]
    names = {"select"}
    while more := {name for name, words in bodies if names & words} - names:
        names |= more
    return frozenset(names - {"select"})


def has_window(node: Node) -> bool:
    """Whether an expression has a window function, except in subqueries."""
    return any(isinstance(inner, Window) for inner in own_nodes(node))


def own_nodes(node: Node) -> Iterator[Node]:
    """The nodes of an expression, except those in subqueries."""
    return node.walk(prune=lambda part: isinstance(part, Query))


def outermost_queries(node: Node) -> list[Query]:
    """The subqueries of an expression, without those inside of them."""
    return [inner for inner in own_nodes(node) if isinstance(inner, Query)]


def makes_rows(node: Node) -> bool:
    """Whether an expression gives several rows for one."""
    return any(map(is_row_maker, own_nodes(node)))


def is_row_maker(node: Node) -> bool:
    """Whether a node is a function that gives several rows for one."""
    return isinstance(node, FunctionCall) and node.name.lower() in _MAKES_ROWS


def is_lambda(node: Node) -> bool:
    """Whether a lambda is one, and not the arrow that reads from a JSON document."""
    if not isinstance(node, tree.Lambda):
        return False
    if node.args.get("syntax_type") == "LAMBDA_KEYWORD":
        return True
    used = {column.names[0].lower() for column in node.body.find_all(Column)}
    return isinstance(node.parent, tree.Argument) and bool(used & node.names)


def is_variable(column: Column) -> bool:
    """Whether a column is a variable of a lambda: where it is declared, or where it is used.

    If a table has a column of the same name, the variable takes precedence.
    """
    return declares(column, column.names[0])


def declares(node: Node, name: str) -> bool:
    """Whether a lambda around a node has a variable of a name."""
    name = name.lower()
    return any(
        isinstance(parent, tree.Lambda) and is_lambda(parent) and name in parent.names
        for parent in node.ancestors()
    )


def has_lambda(node: Node) -> bool:
    """Whether an expression has a lambda."""
    return any(map(is_lambda, node.find_all(tree.Lambda)))


def columns_in(node: Node) -> Iterator[Column]:
    """The columns of an expression, except those in subqueries, and variables."""
    for inner in own_nodes(node):
        if isinstance(inner, Column) and not is_variable(inner):
            yield inner


def clauses_of(select: Select) -> Iterator[Node]:
    """The parts of a SELECT but for its FROM clause and WITH entries."""
    for key, value in select.args.items():
        if key in ("cte_map", "from_table", "sample"):
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Node):
                yield item


def path_in(select: Select, node: Node) -> list[Node]:
    """A node of a SELECT and those around it, up to the clause."""
    path = [node, *node.ancestors()]
    return path[: next(index for index, ancestor in enumerate(path) if ancestor is select)]
