"""Writes out the views and macros with LLM calls that a statement reads.

FROM v                  =>  FROM (SELECT LLM('...', a) AS x FROM t) AS v
WHERE is_nice(review)   =>  WHERE (LLM('Is it nice?', review) = 'Yes')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.host.kept import Definition, Key, Kind
from relquery.sql.read.macros import put_arguments
from relquery.sql.read.scopes import calls_in
from relquery.sql.read.source import (
    Source,
    call_number,
    named_like,
    read_source,
    readable,
)
from relquery.sql.read.tokens import parse

_WRITES = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Schema, exp.Drop)
# What a table in FROM may have beside its name.
_KEPT_ARGS = ("alias", "joins", "laterals", "pivots", "sample")


@dataclass(frozen=True, slots=True)
class Expanded(Source):
    """A statement with the calls of the views and macros that it reads.

    added: the texts of those calls; they are numbered after the statement's own. used: the
    definitions, innermost first, each with its body written out.
    """

    added: tuple[str, ...] = ()
    used: tuple[tuple[Definition, exp.Expr], ...] = ()

    def text(self, index: int) -> str:
        """Call `index`: as written, or with the arguments of its macro."""
        own = len(self.calls)
        return Source.text(self, index) if index < own else self.added[index - own]


def expand(
    source: Source, tree: exp.Expr, definitions: Mapping[Key, Definition]
) -> tuple[Expanded, exp.Expr]:
    """A statement with all views and macros written out. Changes `tree`.

    Raises QueryError for wrong arguments and for definitions that read themselves,
    UnsupportedQueryError where a view cannot be written out.
    """
    expansion = _Expansion(definitions, len(source.calls))
    tree = expansion.written_out(tree)
    added, used = tuple(expansion.texts), tuple(expansion.used.values())
    return Expanded(source.sql, source.calls, added, used), tree


def reads_any(tree: exp.Expr, definitions: Mapping[Key, Definition]) -> bool:
    """Whether a statement reads a view or macro of these."""
    return any(macro_called(node, definitions) for node in tree.find_all(exp.Anonymous)) or any(
        _view(node, definitions) for node in tree.find_all(exp.Table)
    )


@dataclass(slots=True)
class _Expansion:
    """definitions: all there are. first: the number of the first call that is added.

    texts: of the calls added. used: definitions used, with their bodies. within: those that are
    being written out, from the outside in.
    """

    definitions: Mapping[Key, Definition]
    first: int
    texts: list[str] = field(default_factory=list)
    used: dict[Key, tuple[Definition, exp.Expr]] = field(default_factory=dict)
    within: list[Definition] = field(default_factory=list)

    def written_out(self, tree: exp.Expr) -> exp.Expr:
        """A tree without views and macros."""
        top = exp.Paren(this=tree)
        for node in reversed(list(tree.find_all(exp.Anonymous, exp.Table, bfs=False))):
            if isinstance(node, exp.Table):
                if (view := _view(node, self.definitions)) is not None:
                    _put_query(node, view, self._of_table(node, view))
                continue
            assert isinstance(node, exp.Anonymous)
            if (macro := macro_called(node, self.definitions)) is not None:
                put = exp.paren(self._applied(macro, node), copy=False)
                node.replace(named_like(put, node))
        inner: exp.Expr = top.this
        inner.pop()
        return inner

    def _of_table(self, table: exp.Table, definition: Definition) -> exp.Expr:
        """The query behind a name in FROM."""
        if definition.kind == "VIEW":
            query = self._body(definition).copy()
        else:
            query = self._applied(definition, table.this)
        if hidden := _entries_around(table) & set(_tables_read(query)):
            entry = sorted(hidden)[0]
            raise UnsupportedQueryError(
                f"The WITH entry '{entry}' has the name of a table that {definition.name} reads. "
                "Rename the entry."
            )
        return query

    def _applied(self, macro: Definition, call: exp.Anonymous) -> exp.Expr:
        """The body of a macro for the arguments of a call, with numbers of its own."""
        body, own = self._body(macro), {call_number(one) for one in calls_in(self._body(macro))}
        put = put_arguments(body, self._arguments(macro, call))
        for inner in reversed(list(calls_in(put))):
            if (number := call_number(inner)) in own and number is not None:
                function, _, _ = self.texts[number - self.first].partition("(")
                listing = ", ".join(map(readable, inner.expressions))
                self._number(inner, f"{function}({listing})")
        return put

    def _arguments(self, macro: Definition, call: exp.Anonymous) -> dict[str, exp.Expr]:
        """The values of a macro's parameters by lower-case name."""
        values = {name: _expression(text) for name, text in macro.defaults.items()}
        names = [name.lower() for name in macro.names]
        given: list[exp.Expr] = []
        for argument in call.expressions:
            if not isinstance(argument, exp.PropertyEQ | exp.Kwarg):
                given.append(argument)
                continue
            name = argument.this.name.lower()
            if name not in names:
                raise _wrong_arguments(macro, f"has no parameter {name}")
            values[name] = argument.expression
        if len(given) > len(names):
            raise _wrong_arguments(macro, f"is given {len(given)} values")
        values |= dict(zip(names, given, strict=False))
        if missing := [name for name in names if name not in values]:
            raise _wrong_arguments(macro, f"is given no value for {missing[0]}")
        return values

    def _body(self, definition: Definition) -> exp.Expr:
        """The body of a definition, written out and with numbered calls."""
        if definition in self.within:
            path = " reads ".join(one.name for one in [*self.within, definition])
            raise QueryError(f"{definition.name} reads itself: {path}. Break the circle.")
        if definition.key not in self.used:
            source = read_source(definition.body)
            tree: exp.Expr = source.parse()
            for call in list(calls_in(tree)):
                number = call_number(call)
                assert number is not None
                self._number(call, source.text(number))
            self.within.append(definition)
            tree = self.written_out(tree)
            self.within.pop()
            if definition.kind == "VIEW":
                _name_items(tree, definition.columns)
            self.used[definition.key] = (definition, tree)
        return self.used[definition.key][1]

    def _number(self, call: exp.Anonymous, text: str) -> None:
        call.set("this", f"{ours.CALL}{self.first + len(self.texts)}")
        self.texts.append(text)


def macro_called(call: exp.Anonymous, definitions: Mapping[Key, Definition]) -> Definition | None:
    """The scalar macro that a function call means; None if it is not a macro with calls."""
    if isinstance(call.parent, exp.Table | exp.Dot) or not isinstance(call.this, str):
        return None
    return definitions.get(("MACRO", call.this.lower()))


def _view(table: exp.Table, definitions: Mapping[Key, Definition]) -> Definition | None:
    """The view or table macro that a table means; None if it is an ordinary table."""
    kind: Kind = "TABLE MACRO" if isinstance(table.this, exp.Anonymous) else "VIEW"
    name = str(table.this.this).lower() if kind == "TABLE MACRO" else table.name.lower()
    found = None if table.db else definitions.get((kind, name))
    return None if kind == "VIEW" and found and name in _entries_around(table) else found


def _put_query(table: exp.Table, view: Definition, query: exp.Expr) -> None:
    """Put a query in the place of the view that a statement reads."""
    if isinstance(table.parent, _WRITES) and table.arg_key == "this":
        raise QueryError(f"{view.name} is a view. Only tables can be written to.")
    others = [key for key, arg in table.args.items() if arg and key not in ("this", *_KEPT_ARGS)]
    if others:
        raise UnsupportedQueryError(
            f"{view.name} is read with {', '.join(others).upper()}, which a view with LLM calls "
            f"does not support. Read it in a subquery: FROM (SELECT * FROM {view.name})."
        )
    args = {key: table.args.get(key) for key in _KEPT_ARGS}
    alias = args.pop("alias") or exp.TableAlias()
    if alias.this is None:
        alias.set("this", exp.to_identifier(view.name, quoted=True))
    if view.kind == "VIEW" and view.names:
        given = alias.args.get("columns") or []
        names = [exp.to_identifier(name, quoted=True) for name in view.names[len(given) :]]
        alias.set("columns", [*given, *names])
    put: exp.Expr = exp.Subquery(this=query, alias=alias, **args)
    if isinstance(table.parent, exp.Describe | exp.Copy):
        put = exp.select("*").from_(put)
        put = put.subquery() if isinstance(table.parent, exp.Copy) else put
    table.replace(put)


def _name_items(query: exp.Expr, names: tuple[str, ...]) -> None:
    """Give the items of a view's query the names that they had when it was created, in place."""
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select):
        return
    items = query.expressions
    stars = [at for at, item in enumerate(items) if item.is_star]
    before = min(stars, default=len(items))
    after = len(items) - 1 - max(stars, default=len(items))
    pairs = [*zip(items[:before], names, strict=False)]
    pairs += zip(items[::-1][: max(after, 0)], names[::-1], strict=False)
    for item, name in pairs:
        if not isinstance(item, exp.Alias | exp.Column):
            item.replace(exp.alias_(item.copy(), name, quoted=True))


def _entries_around(node: exp.Expr) -> set[str]:
    """Lower-case names of the WITH entries that a node can read."""
    found: set[str] = set()
    inside: exp.Expr | None = None
    parent = node.parent
    while parent is not None:
        clause = parent.args.get("with_")
        if clause is not None:
            found.update(_entries_before(clause, inside))
        inside = parent if isinstance(parent, exp.CTE) else inside
        parent = parent.parent
    return found


def _entries_before(clause: exp.Expr, inside: exp.Expr | None) -> Iterator[str]:
    for entry in clause.expressions:
        if entry is inside and not clause.args.get("recursive"):
            return
        yield entry.alias.lower()


def _tables_read(query: exp.Expr) -> Iterator[str]:
    """Lower-case names of the tables that a query reads, without its own WITH entries."""
    for table in query.find_all(exp.Table):
        name = table.name.lower()
        if not table.db and name not in _entries_around(table):
            yield name


def _expression(sql: str) -> exp.Expr:
    return parse(sql)


def _wrong_arguments(macro: Definition, what: str) -> QueryError:
    return QueryError(f"The macro {macro.name}({', '.join(macro.names)}) {what}.")
