"""Parsing of queries and printing of trees, both by DuckDB."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import duckdb

from relquery.errors import QueryError, SqlSyntaxError
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import Expression, Modifier, Node, Query, Select, Type, node_of

_SHORT = "skip_null := true, skip_empty := true, skip_default := true"
_PARSE = f"SELECT json_serialize_sql($1, {_SHORT})"
_PRINT = "SELECT list_transform($1::JSON[], lambda tree: json_deserialize_sql(tree))"
_ITEM = "SELECT "
_MOST = 4096  # printed parts that are remembered


@dataclass(slots=True)
class Parser:
    """DuckDB's parser and printer. They need no database, so they have an empty one."""

    connection: Any
    turn: threading.Lock = field(default_factory=threading.Lock)
    _types: dict[str, Node] = field(default_factory=dict)
    _printed: dict[tuple[bool, str], str] = field(default_factory=dict)

    def query(self, text: str) -> Query:
        """The tree of a query. Raises SqlSyntaxError, and NoTreeError for other statements."""
        (parsed,) = self._run(_PARSE, text)
        return _query(json.loads(parsed), text)

    def expression(self, text: str) -> Expression:
        """The tree of an expression."""
        query = self.query(f"{_ITEM}{text}")
        assert isinstance(query, Select)
        (item,) = query.items
        item.parent, item.place = None, ""
        return item

    def type(self, name: str) -> Node:
        """The tree of a type, by the name that DuckDB gives it."""
        if name not in self._types:
            if name.replace(" ", "").isalpha() and name.isupper():
                self._types[name] = Type(type_name=name)
            else:
                cast = self.expression(f"CAST(NULL AS {name})")
                self._types[name] = cast.args["type_expr"]
        return self._types[name].copy()

    def print(self, nodes: Iterable[Node]) -> list[str]:
        """Queries and expressions as SQL. What an expression is called is left out."""
        listed = list(nodes)
        keys = [(isinstance(node, Query), node.key) for node in listed]
        if len(self._printed) > _MOST:
            self._printed.clear()
        pairs = zip(keys, listed, strict=True)
        new = {key: node for key, node in pairs if key not in self._printed}
        if new:
            (printed,) = self._run(_PRINT, [json.dumps(_statement(node)) for node in new.values()])
            for key, sql in zip(new, printed, strict=True):
                self._printed[key] = sql.strip().removeprefix("" if key[0] else _ITEM)
        return [self._printed[key] for key in keys]

    def sql(self, node: Node) -> str:
        """A query or an expression as SQL."""
        return self.print([node])[0]

    def _run(self, sql: str, value: str | list[str]) -> tuple[Any, ...]:
        with self.turn:
            row = self.connection.execute(sql, [value]).fetchone()
        assert isinstance(row, tuple)
        return row


def _statement(node: Node) -> dict[str, Any]:
    data = node.data()
    if not isinstance(node, Query):
        data.pop("alias", None)
        data = {**_EMPTY, "select_list": [data]}
    return {"error": False, "statements": [{"node": data}]}


class NoTreeError(QueryError):
    """A statement of which DuckDB gives no tree."""


_EMPTY: dict[str, Any] = {
    "type": "SELECT_NODE",
    "cte_map": {},
    "from_table": {"type": "EMPTY"},
    "aggregate_handling": "STANDARD_HANDLING",
}


@cache
def parser() -> Parser:
    """The parser. It is a function of its texts, so one serves all."""
    return Parser(duckdb.connect(":memory:", config={"threads": 1, "async_threads": 0}))


def _query(found: dict[str, Any], sql: str) -> Query:
    if not found["error"]:
        (statement,) = found["statements"]
        node = node_of(statement["node"], "node")
        assert isinstance(node, Query)
        _number_keys(node)
        for inner in list(node.find_all(Query))[:0:-1]:
            if (nested := _nested(inner)) is not inner:
                inner.replace(nested)
        return _nested(node)
    if found["error_type"] != "parser":
        raise NoTreeError(found["error_message"])
    line, column = place(sql, int(found.get("position", 0)))
    raise SqlSyntaxError(f"The SQL has a syntax error: {found['error_message']}", sql, line, column)


def _number_keys(node: Node) -> None:
    """Write keys that are items of the select list by their number, in place: ORDER BY #1."""
    for query in list(node.find_all(Query)):  # ORDER BY of an aggregate sees no such items
        keys = [key.value for key in query.order.keys] if query.order else []
        keys += query.distinct.on if query.distinct else []
        for key in keys:
            if isinstance(key, tree.Position):
                key.replace(build.number(key.number))


def _nested(query: Query) -> Query:
    """A query whose modifiers after a parenthesis are those of a SELECT of their own.

    (SELECT a FROM t LIMIT 3) LIMIT 2 => SELECT * FROM (SELECT a FROM t LIMIT 3) LIMIT 2

    DuckDB's tree has all of them in one list, in this order, and its printer drops the parentheses.
    """
    runs: list[list[Modifier]] = [[]]
    for modifier in query.modifiers:
        if runs[-1] and build.rank(modifier) <= build.rank(runs[-1][-1]):
            runs.append([])
        runs[-1].append(modifier)
    if len(runs) == 1:
        return query
    nested = query.copy()
    nested.set("modifiers", runs[0])
    for run in runs[1:]:
        nested = build.select([build.star()], build.derived(nested))
        nested.set("modifiers", run)
    return nested


def place(sql: str, byte: int) -> tuple[int, int]:
    """The line and the column, both from 1, of a byte of a text."""
    before = sql.encode()[:byte].decode(errors="ignore")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
