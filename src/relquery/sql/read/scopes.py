"""Finds the next SELECT to run (the innermost one with calls) and the WITH clauses it sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from relquery.errors import UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.read.source import call_number, to_sql


def calls_in(node: exp.Expr) -> Iterator[exp.Anonymous]:
    """The LLM calls in a tree, outer before inner."""
    for found in node.find_all(exp.Anonymous, bfs=False):
        if call_number(found) is not None:
            yield found


def has_call(node: exp.Expr | None) -> bool:
    """Whether a tree contains an LLM call."""
    return node is not None and next(calls_in(node), None) is not None


def next_select(tree: exp.Expr) -> exp.Select | None:
    """The SELECT to run next: nothing inside or before it has calls.

    Raises UnsupportedQueryError for a call outside any SELECT or in a recursive WITH.
    """
    selects: list[exp.Select] = []
    for call in calls_in(tree):
        check_not_recursive(call)
        select = call.find_ancestor(exp.Select)
        if select is None:
            raise UnsupportedQueryError(
                f"An LLM call in this {tree.key.upper()} statement is outside a SELECT. Write "
                "its answers to a table first: CREATE TABLE answers AS SELECT ..., LLM(...)."
            )
        if not any(select is known for known in selects):
            selects.append(select)
    if not selects:
        return None
    for select in selects:
        inner = (found for found in select.find_all(exp.Select) if found is not select)
        if not any(map(calls_directly, inner)) and not any(map(has_call, visible_ctes(select))):
            return select
    raise AssertionError("some SELECT is innermost")


def with_inside(tree: exp.Expr) -> exp.Expr:
    """`WITH ... INSERT INTO t SELECT ...` with the WITH entries moved into the INSERT's query."""
    clause, query = tree.args.get("with_"), tree.args.get("expression")
    if clause is None or not isinstance(tree, exp.Insert) or not isinstance(query, exp.Query):
        return tree
    if query.args.get("with_"):
        query = exp.select("*").from_(query.subquery(ours.ROWS))
    tree.set("with_", None)
    query.set("with_", clause)
    tree.set("expression", query)
    return tree


def is_subquery(node: exp.Expr) -> bool:
    """Whether a node is a query in parentheses, or has one in its own, like EXISTS (...)."""
    return isinstance(node, exp.Query) or bool(bare_queries(node))


def bare_queries(node: exp.Expr) -> list[exp.Expr]:
    """The queries in a node's own parentheses."""
    return [
        child
        for child in node.iter_expressions()
        if isinstance(child, exp.Query) and not isinstance(child, exp.Subquery)
    ]


def compared_with_query(node: exp.Expr) -> tuple[str, exp.Expr] | None:
    """(which argument is compared, the query) of `x IN (SELECT ...)` and `x = ANY (SELECT ...)`."""
    if isinstance(node, exp.In):
        query = node.args.get("query")
        return None if query is None else ("this", query)
    for other, side in (("this", "expression"), ("expression", "this")):
        many = node.args.get(side)
        if isinstance(many, exp.Any | exp.All) and isinstance(many.this.unnest(), exp.Query):
            return other, many.this.unnest()
    return None


def visible_ctes(query: exp.Expr) -> list[exp.CTE]:
    """The WITH entries that a part of a statement can use, including its own, outermost first."""
    seen: dict[str, exp.CTE] = {}
    scopes: list[list[exp.CTE]] = []
    node: exp.Expr | None = query
    inside: exp.Expr | None = None
    while node is not None:
        clause = node.args.get("with_")
        if clause is not None:
            scopes.append(_before(clause, inside))
        inside = node if isinstance(node, exp.CTE) else inside
        node = node.parent
    for entries in reversed(scopes):
        for entry in entries:
            seen.pop(entry.alias.lower(), None)
            seen[entry.alias.lower()] = entry
    return list(seen.values())


@dataclass(frozen=True, slots=True)
class Context:
    """The WITH entries that a SELECT needs to run on its own."""

    entries: tuple[exp.CTE, ...] = ()
    recursive: bool = False

    def sql(self, body: str, *more: str) -> str:
        """`body` preceded by these entries and `more` entries."""
        entries = (*map(to_sql, self.entries), *more)
        if not entries:
            return body
        return f"WITH {'RECURSIVE ' if self.recursive else ''}{', '.join(entries)} {body}"


def context_of(query: exp.Expr) -> Context:
    """What a query sees from outside and from its own WITH clause."""
    entries = visible_ctes(query)
    return Context(
        tuple(entry.copy() for entry in entries),
        any(map(_is_recursive, entries)),
    )


def _is_recursive(entry: exp.CTE) -> bool:
    return bool(entry.parent and entry.parent.args.get("recursive"))


def check_not_recursive(call: exp.Expr) -> None:
    """Raises UnsupportedQueryError for a call in a recursive WITH entry."""
    entry = call.find_ancestor(exp.CTE)
    while entry is not None:
        names = {table.name.lower() for table in entry.this.find_all(exp.Table)}
        if _is_recursive(entry) and entry.alias.lower() in names:
            raise UnsupportedQueryError(
                f"An LLM call is in the recursive WITH entry '{entry.alias}'. Run the "
                "recursion first and call LLM on its result."
            )
        entry = entry.find_ancestor(exp.CTE)


def _before(clause: exp.Expr, inside: exp.Expr | None) -> list[exp.CTE]:
    entries: list[exp.CTE] = []
    for entry in clause.expressions:
        if entry is inside:
            break
        entries.append(entry)
    return entries


def calls_directly(select: exp.Select) -> bool:
    """Whether a SELECT has a call that is not in a query inside it."""
    return any(call.find_ancestor(exp.Select) is select for call in calls_in(select))
