"""The tree of a query, as DuckDB's `json_serialize_sql` gives it.

A node is one JSON object. Its class says what it is; what no class names is kept as it came and
goes back to DuckDB unchanged. Wrappers of DuckDB's (an argument, a WHEN, a WITH entry) are nodes,
too, so every expression has a parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

N = TypeVar("N", bound="Node")
T = TypeVar("T")

_LOCATION, _LENGTH = "query_location", "query_location_length"
_PLACES = (_LOCATION, _LENGTH)
_NOT_OF_TOP = (*_PLACES, "alias")
# Classes by what JSON says of their nodes.
_BY_CLASS: dict[str, type[Node]] = {}
_BY_TYPE: dict[str, type[Node]] = {}


class _Arg(Generic[T]):
    """An argument of a node, read and written as an attribute.

    key: DuckDB's name for it; "subquery.node" for one that is read in a wrapper. default: where
    DuckDB gives none.
    """

    def __init__(self, key: str, default: Any = None) -> None:
        self.wrapper, _, self.key = key.rpartition(".")
        self.default = default

    @overload
    def __get__(self, node: None, owner: type) -> Self: ...
    @overload
    def __get__(self, node: Node, owner: type) -> T: ...
    def __get__(self, node: Node | None, owner: type) -> Self | T:
        if node is None:
            return self
        if self.wrapper:
            node = node.args.get(self.wrapper)
        value: T = self.default if node is None else node.args.get(self.key, self.default)
        return value

    def __set__(self, node: Node, value: T) -> None:
        assert not self.wrapper
        node.set(self.key, value)


class Node:
    """One JSON object of the tree.

    args: what it has, by DuckDB's names: nodes, lists of nodes, and plain values. parent: the node
    that has it, and place: under which name. meta: notes of ours, which copies keep.
    """

    given: ClassVar[dict[str, Any]] = {}
    """What DuckDB's JSON says in every node of a class."""

    def __init_subclass__(cls, kind: str = "", **given: str) -> None:
        """Note what is given in a node of the class; kind: the `class` of an expression."""
        super().__init_subclass__()
        if kind:
            _BY_CLASS[kind] = cls
            cls.given = {"class": kind, **given}
        elif given:
            _BY_TYPE[given["type"]] = cls
            cls.given = given

    def __init__(self, **args: Any) -> None:
        self.args: dict[str, Any] = {}
        self.meta: dict[str, Any] = {}
        self.parent: Node | None = None
        self.place = ""
        for key, value in (*self.given.items(), *args.items()):
            self.set(key, value)

    def set(self, key: str, value: Any) -> None:
        """Put a value under a name; None, or an empty alias, takes it away."""
        if value is None or (key == "alias" and not value):
            self.args.pop(key, None)
            return
        self.args[key] = value
        _adopt(self, key, value)

    # Reading

    def children(self) -> Iterator[Node]:
        """The nodes right below."""
        for value in self.args.values():
            yield from _nodes(value)

    def walk(self, prune: Callable[[Node], bool] | None = None) -> Iterator[Node]:
        """This node and all below, outer before inner. prune: below which not to go on."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            yield node
            if prune is None or not prune(node):
                stack.extend(reversed(list(node.children())))

    def find_all(self, *kinds: type[N]) -> Iterator[N]:
        """The nodes of some classes, outer before inner."""
        for node in self.walk():
            if isinstance(node, kinds):
                yield node

    def find(self, *kinds: type[N]) -> N | None:
        """The first node of some classes."""
        return next(self.find_all(*kinds), None)

    def ancestors(self) -> Iterator[Node]:
        """The nodes above, nearest first."""
        parent = self.parent
        while parent is not None:
            yield parent
            parent = parent.parent

    def ancestor(self, *kinds: type[N]) -> N | None:
        """The nearest node above of some classes."""
        return next((node for node in self.ancestors() if isinstance(node, kinds)), None)

    @property
    def root(self) -> Node:
        """The node above all others."""
        *_, top = (self, *self.ancestors())
        return top

    @property
    def index(self) -> int:
        """Its place in the list that has it; -1 outside a list."""
        siblings = None if self.parent is None else self.parent.args.get(self.place)
        if not isinstance(siblings, list):
            return -1
        return next(place for place, sibling in enumerate(siblings) if sibling is self)

    @property
    def span(self) -> tuple[int, int] | None:
        """From which byte of the text to which it stands; None for a node that was made."""
        start, length = self.args.get(_LOCATION), self.args.get(_LENGTH)
        return None if start is None or length is None else (start, start + length)

    @property
    def key(self) -> str:
        """A text that is the same for equal trees, wherever they stand and whatever their alias."""
        parts: list[str] = []
        _write_key(self, parts, _NOT_OF_TOP)
        return "".join(parts)

    # Changing

    def copy(self) -> Self:
        """A copy without a parent; notes are shared."""
        made = object.__new__(type(self))
        made.meta, made.parent, made.place = dict(self.meta), None, ""
        made.args = {key: _mapped(Node.copy, value) for key, value in self.args.items()}
        for key, value in made.args.items():
            _adopt(made, key, value)
        return made

    def replace(self, *by: Node) -> None:
        """Put nodes in the place of this one; several only where it is in a list."""
        parent, place = self.parent, self.place
        assert parent is not None
        siblings = parent.args[place]
        if isinstance(siblings, list):
            parent.set(place, list(_put(siblings, self, by)))
        else:
            (node,) = by or (None,)
            parent.set(place, node)
        if not any(node is self for node in by):
            self.parent, self.place = None, ""

    def remove(self) -> None:
        """Take it out of its parent."""
        self.replace()

    def rebuilt(self, change: Callable[[Node], Node | None]) -> Node:
        """A copy in which `change` has replaced nodes, outer ones first. It returns None for a node
        to keep; what it puts in is not looked into."""
        copy = self.copy()
        stack = [copy]
        while stack:
            node = stack.pop()
            changed = change(node)
            if changed is None or changed is node:
                stack.extend(node.children())
            elif node is copy:
                return changed
            else:
                node.replace(changed)
        return copy

    def data(self) -> dict[str, Any]:
        """The JSON object."""
        return {key: _mapped(Node.data, value) for key, value in self.args.items()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key})"


# Expressions


class Expression(Node):
    """A value. alias: its name in a select list, or as an argument."""

    alias: _Arg[str] = _Arg("alias", "")

    def named(self, name: str) -> Self:
        """The same node, with a name."""
        self.alias = name
        return self


class Column(Expression, kind="COLUMN_REF", type="COLUMN_REF"):
    """A reference by name. names: of a column and what is before it: `a`, `t.a`, `s.t.a`, `a.b`."""

    names: _Arg[list[str]] = _Arg("column_names")

    @property
    def name(self) -> str:
        """The last part."""
        return self.names[-1]

    @property
    def table(self) -> str:
        """What is before the last part; "" for a single name."""
        return self.names[-2] if len(self.names) > 1 else ""


class Constant(Expression, kind="CONSTANT", type="VALUE_CONSTANT"):
    """A literal. kind: as DuckDB has it: STRING, INTEGER, NUMERIC, BOOLEAN, NULL_LITERAL, HEX.
    text: as written, without quotes."""

    kind: _Arg[str] = _Arg("literal.kind")
    text: _Arg[str] = _Arg("literal.text", "")


class Argument(Node):
    """An argument of a function. name: as in `name := value`; "" without one."""

    name: _Arg[str] = _Arg("name", "")
    value: _Arg[Expression] = _Arg("expression")


class FunctionCall(Expression, kind="FUNCTION", type="FUNCTION"):
    """A call of a function, an aggregate, a macro or an operator such as `+`.

    schema, catalog: what is before its name; of `x.upper()` that is a column. filter: its FILTER.
    orders: the keys of its ORDER BY or WITHIN GROUP.
    """

    name: _Arg[str] = _Arg("function_name")
    schema: _Arg[str] = _Arg("schema", "")
    catalog: _Arg[str] = _Arg("catalog", "")
    arguments: _Arg[list[Argument]] = _Arg("arguments", [])
    filter: _Arg[Expression | None] = _Arg("filter")
    distinct: _Arg[bool] = _Arg("distinct", False)
    is_operator: _Arg[bool] = _Arg("is_operator", False)
    orders: _Arg[list[Ordered]] = _Arg("order_bys.orders", [])

    @property
    def values(self) -> list[Expression]:
        """The arguments without their names."""
        return [argument.value for argument in self.arguments]


class Window(FunctionCall, kind="WINDOW"):
    """A function over a window."""

    partitions: _Arg[list[Expression]] = _Arg("partitions", [])
    orders: _Arg[list[Ordered]] = _Arg("orders", [])


class Operator(Expression, kind="OPERATOR"):
    """IN, NOT, IS NULL, COALESCE, TRY, `[...]`, GROUPING and the like. kind: as DuckDB has it."""

    kind: _Arg[str] = _Arg("type")
    operands: _Arg[list[Expression]] = _Arg("children", [])


class Conjunction(Expression, kind="CONJUNCTION"):
    """AND or OR of two or more conditions."""

    kind: _Arg[str] = _Arg("type")
    operands: _Arg[list[Expression]] = _Arg("children", [])

    @property
    def is_and(self) -> bool:
        """Whether it is AND."""
        return self.kind == "CONJUNCTION_AND"


class ComparisonExpression(Expression, kind="COMPARISON"):
    """`=`, `<`, IS DISTINCT FROM and the like. kind: as DuckDB has it, e.g. COMPARE_EQUAL."""

    kind: _Arg[str] = _Arg("type")
    left: _Arg[Expression] = _Arg("left")
    right: _Arg[Expression] = _Arg("right")


class Between(Expression, kind="BETWEEN", type="COMPARE_BETWEEN"):
    """`value BETWEEN lower AND upper`."""

    value: _Arg[Expression] = _Arg("input")
    lower: _Arg[Expression] = _Arg("lower")
    upper: _Arg[Expression] = _Arg("upper")


class When(Node):
    """`WHEN condition THEN value`. Of `CASE x WHEN y` the condition is `x = y`."""

    condition: _Arg[Expression] = _Arg("when_expr")
    value: _Arg[Expression] = _Arg("then_expr")


class Case(Expression, kind="CASE", type="CASE_EXPR"):
    """CASE. default: its ELSE."""

    branches: _Arg[list[When]] = _Arg("case_checks", [])
    default: _Arg[Expression | None] = _Arg("else_expr")


class Cast(Expression, kind="CAST", type="OPERATOR_CAST"):
    """CAST or TRY_CAST. to: the type, a tree as well."""

    value: _Arg[Expression] = _Arg("child")
    to: _Arg[Node] = _Arg("type_expr")
    is_try: _Arg[bool] = _Arg("try_cast", False)


class Subquery(Expression, kind="SUBQUERY", type="SUBQUERY"):
    """A query as a value: SCALAR, EXISTS, NOT_EXISTS, or ANY. compared: what ANY compares."""

    kind: _Arg[str] = _Arg("subquery_type")
    compared: _Arg[Expression | None] = _Arg("child")
    query: _Arg[Query] = _Arg("subquery.node")


class Star(Expression, kind="STAR", type="STAR"):
    """`*`, `t.*` or COLUMNS(...). table: what is before it. pattern: of COLUMNS."""

    table: _Arg[str] = _Arg("relation_name", "")
    is_columns: _Arg[bool] = _Arg("columns", False)
    pattern: _Arg[Expression | None] = _Arg("expr")
    replaced: _Arg[list[Entry]] = _Arg("replace_list", [])


class Lambda(Expression, kind="LAMBDA", type="LAMBDA"):
    """`lambda x: ...` or `x -> ...`, which may also read a JSON document."""

    parameters: _Arg[Expression] = _Arg("lhs")
    body: _Arg[Expression] = _Arg("expr")

    @property
    def names(self) -> set[str]:
        """Lower-case names of its parameters; none if it cannot be a lambda."""
        left = self.parameters
        listed = left.values if isinstance(left, FunctionCall) and left.name == "row" else [left]
        names = [node.names for node in listed if isinstance(node, Column)]
        is_list = len(names) == len(listed) and all(len(name) == 1 for name in names)
        return {name[0].lower() for name in names} if is_list else set()


class Parameter(Expression, kind="PARAMETER", type="VALUE_PARAMETER"):
    """`$name`, `$1` or `?`. name: in lower case, or its number."""

    name: _Arg[str] = _Arg("identifier")


class Position(Expression, kind="POSITIONAL_REFERENCE", type="POSITIONAL_REFERENCE"):
    """`#1`: a column by its place in the FROM clause, but in that of the select list as a key of
    ORDER BY or DISTINCT ON."""

    number: _Arg[int] = _Arg("index")


class Type(Expression, kind="TYPE", type="TYPE"):
    """The name of a type, with what is in its parentheses."""


class Ordered(Node, type="ORDER_DEFAULT", null_order="ORDER_DEFAULT"):
    """A key of ORDER BY. direction: ORDER_DEFAULT, ASCENDING or DESCENDING."""

    direction: _Arg[str] = _Arg("type")
    value: _Arg[Expression] = _Arg("expression")


# Queries


class Entry(Node):
    """A pair of a name and what it names: a WITH entry, or an item of REPLACE.

    query, columns: of a WITH entry: its query, and the names that it gives to columns.
    """

    name: _Arg[str] = _Arg("key")
    value: _Arg[Node] = _Arg("value")
    query: _Arg[Query] = _Arg("value.query_node")
    columns: _Arg[list[str]] = _Arg("value.aliases", [])

    @property
    def is_materialized(self) -> bool:
        """Whether MATERIALIZED is written."""
        return self.value.args.get("materialized") == "CTE_MATERIALIZE_ALWAYS"


class Modifier(Node):
    """A change that a query makes to its rows at the end."""


class Order(Modifier, type="ORDER_MODIFIER"):
    """ORDER BY."""

    keys: _Arg[list[Ordered]] = _Arg("orders", [])


class Limit(Modifier, type="LIMIT_MODIFIER"):
    """LIMIT and OFFSET."""

    limit: _Arg[Expression | None] = _Arg("limit")
    offset: _Arg[Expression | None] = _Arg("offset")

    @property
    def is_share(self) -> bool:
        """Whether the limit is a share of the rows: LIMIT 10%."""
        return bool(self.args.get("limit_type") == "PERCENTAGE")


class Distinct(Modifier, type="DISTINCT_MODIFIER"):
    """DISTINCT. on: the keys of DISTINCT ON."""

    on: _Arg[list[Expression]] = _Arg("distinct_on_targets", [])


class Query(Node):
    """A query: a SELECT, a set operation, or the two parts of a recursive entry."""

    modifiers: _Arg[list[Modifier]] = _Arg("modifiers", [])

    @property
    def entries(self) -> list[Entry]:
        """Its WITH entries."""
        clause = self.args.get("cte_map")
        listed: list[Entry] = [] if clause is None else clause.args.get("map", [])
        return listed

    @entries.setter
    def entries(self, entries: Iterable[Entry]) -> None:
        listed = list(entries)
        self.set("cte_map", Node(map=listed) if listed else Node())

    def _modifier(self, kind: type[N]) -> N | None:
        return next((modifier for modifier in self.modifiers if isinstance(modifier, kind)), None)

    @property
    def order(self) -> Order | None:
        """Its ORDER BY."""
        return self._modifier(Order)

    @property
    def limit(self) -> Limit | None:
        """Its LIMIT and OFFSET."""
        return self._modifier(Limit)

    @property
    def distinct(self) -> Distinct | None:
        """Its DISTINCT."""
        return self._modifier(Distinct)


class Select(Query, type="SELECT_NODE", aggregate_handling="STANDARD_HANDLING"):
    """A SELECT.

    keys: of GROUP BY. sets: which of them each grouping set has, by their place. is_grouped_by_all:
    GROUP BY ALL.
    """

    items: _Arg[list[Expression]] = _Arg("select_list", [])
    source: _Arg[Source | None] = _Arg("from_table")
    where: _Arg[Expression | None] = _Arg("where_clause")
    keys: _Arg[list[Expression]] = _Arg("group_expressions", [])
    sets: _Arg[list[list[int]]] = _Arg("group_sets", [])
    having: _Arg[Expression | None] = _Arg("having")
    qualify: _Arg[Expression | None] = _Arg("qualify")
    sample: _Arg[Node | None] = _Arg("sample")

    def __init__(self, **args: Any) -> None:
        super().__init__(**args)
        for key, kind in (("cte_map", Node), ("from_table", Empty)):
            if key not in self.args:
                self.set(key, kind())

    @property
    def is_grouped_by_all(self) -> bool:
        """Whether it has GROUP BY ALL."""
        return bool(self.args.get("aggregate_handling") == "FORCE_AGGREGATES")


class SetOperation(Query, type="SET_OPERATION_NODE"):
    """UNION, INTERSECT or EXCEPT of two or more queries. kind: e.g. UNION, UNION_BY_NAME."""

    kind: _Arg[str] = _Arg("setop_type")
    branches: _Arg[list[Query]] = _Arg("children", [])
    is_all: _Arg[bool] = _Arg("setop_all", True)


class Recursive(Query, type="RECURSIVE_CTE_NODE"):
    """The query of a recursive WITH entry: where it begins, and what follows from its rows."""


# FROM


class Source(Node):
    """A source of a FROM clause. alias: as it is called. columns: the names given to its
    columns."""

    alias: _Arg[str] = _Arg("alias", "")
    columns: _Arg[list[str]] = _Arg("column_name_alias", [])
    sample: _Arg[Node | None] = _Arg("sample")

    @property
    def name(self) -> str:
        """How its columns are qualified; "" if they cannot be."""
        return self.alias


class Empty(Source, type="EMPTY"):
    """No FROM clause."""


class Table(Source, type="BASE_TABLE"):
    """A table, a view or a WITH entry by name. path: catalog and schema, if given, and the name."""

    table: _Arg[str] = _Arg("table_name")

    @property
    def name(self) -> str:
        return self.alias or self.table

    @property
    def path(self) -> tuple[str, ...]:
        parts = (self.args.get("catalog_name"), self.args.get("schema_name"), self.table)
        return tuple(str(part) for part in parts if part)


class Join(Source, type="JOIN", join_type="INNER", ref_type="REGULAR"):
    """Two sources joined. kind: INNER, LEFT, SEMI, ... method: REGULAR, CROSS, NATURAL, ASOF,
    POSITIONAL."""

    left: _Arg[Source] = _Arg("left")
    right: _Arg[Source] = _Arg("right")
    condition: _Arg[Expression | None] = _Arg("condition")
    using: _Arg[list[str]] = _Arg("using_columns", [])
    kind: _Arg[str] = _Arg("join_type")
    method: _Arg[str] = _Arg("ref_type")


class Derived(Source, type="SUBQUERY"):
    """A query in a FROM clause."""

    query: _Arg[Query] = _Arg("subquery.node")


class TableFunction(Source, type="TABLE_FUNCTION"):
    """A function that gives rows."""

    function: _Arg[FunctionCall] = _Arg("function")

    @property
    def name(self) -> str:
        return self.alias or self.function.name


class Values(Source, type="EXPRESSION_LIST"):
    """VALUES. rows: lists of expressions."""

    rows: _Arg[list[list[Expression]]] = _Arg("values", [])


class Pivot(Source, type="PIVOT"):
    """PIVOT or UNPIVOT of a source."""

    source: _Arg[Source] = _Arg("source")


class Show(Source, type="SHOW_REF"):
    """DESCRIBE, SUMMARIZE or SHOW. query: what it is about, if it is a query."""

    query: _Arg[Query | None] = _Arg("query")


_BY_PLACE: dict[str, type[Node]] = {
    "arguments": Argument,
    "case_checks": When,
    "map": Entry,
    "orders": Ordered,
    "replace_list": Entry,
}


def node_of(data: dict[str, Any], place: str = "") -> Node:
    """The node of a JSON object that stands under a name."""
    kind, of_type = _BY_PLACE.get(place), data.get("type")
    if kind is None and (of_class := data.get("class")) is not None:
        kind = _BY_CLASS.get(of_class, Expression)
    elif kind is None and isinstance(of_type, str):  # the type of a value is an object
        is_query = place.endswith("_node") or place == "node"
        kind = _BY_TYPE.get(of_type, Query if is_query else Node)
    made = object.__new__(kind or Node)
    made.meta, made.parent, made.place, made.args = {}, None, "", {}
    for key, value in data.items():
        if key == "qualified_name":  # says again what other names say
            continue
        read = made.args[key] = _read(value, key)
        _adopt(made, key, read)
    if kind is Argument and "name" in made.args:
        made.args["expression"].args.pop("alias", None)  # it is the argument's name once more
    return made


def _read(value: Any, place: str) -> Any:
    if isinstance(value, dict):
        return node_of(value, place)
    return [_read(item, place) for item in value] if isinstance(value, list) else value


def _adopt(parent: Node, place: str, value: Any) -> None:
    if isinstance(value, Node):
        value.parent, value.place = parent, place
    elif isinstance(value, list):
        for item in value:
            _adopt(parent, place, item)


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _nodes(item)


def _mapped(change: Callable[[Node], Any], value: Any) -> Any:
    """A value with other values in the place of its nodes, in lists as well."""
    if isinstance(value, Node):
        return change(value)
    return [_mapped(change, item) for item in value] if isinstance(value, list) else value


def _put(siblings: list[Any], node: Node, by: Iterable[Node]) -> Iterator[Any]:
    """A list, or a list of lists, with other nodes in the place of one."""
    for sibling in siblings:
        if isinstance(sibling, list):
            yield list(_put(sibling, node, by))
        elif sibling is node:
            yield from by
        else:
            yield sibling


def _write_key(value: Any, parts: list[str], left_out: tuple[str, ...] = _PLACES) -> None:
    if isinstance(value, Node):
        parts.append("{")
        for key in sorted(value.args):
            if key not in left_out:
                parts.append(f"{key}:")
                _write_key(value.args[key], parts)
                parts.append(",")
        parts.append("}")
    elif isinstance(value, list):
        parts.append("[")
        for item in value:
            _write_key(item, parts)
            parts.append(",")
        parts.append("]")
    else:
        parts.append(repr(value))
