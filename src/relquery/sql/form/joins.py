"""Join conditions with calls: they move to WHERE where this keeps their meaning.

FROM a JOIN b ON LLM(...) = 'Yes'  =>  FROM a JOIN b ON true WHERE LLM(...) = 'Yes'

A later RIGHT, FULL or POSITIONAL join adds rows that an earlier condition must not drop. In that
case the joins up to the condition become a subquery with a struct for each of its tables, so
`a.x` keeps its meaning:

FROM a JOIN b ON LLM(...) = 'Yes' RIGHT JOIN c ON c.x = a.x
=> FROM (SELECT {x: a.x} AS a, {y: b.y} AS b FROM a JOIN b ON true WHERE LLM(...) = 'Yes') AS _
   RIGHT JOIN c ON c.x = a.x
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from relquery.errors import UnsupportedQueryError
from relquery.sql import names as ours
from relquery.sql.form.normalize import conjuncts, in_subquery, without_alias
from relquery.sql.read.from_clause import Sources
from relquery.sql.read.scopes import has_call
from relquery.sql.read.source import FIELD_NAME


@dataclass(frozen=True, slots=True)
class Joined:
    """Joins of a FROM clause that must run, with their conditions, before the joins after them.

    first: index of the join whose table comes first; -1 for the table of FROM itself. end: index
    after the last join. conditions: the conditions with calls.
    """

    first: int
    end: int
    conditions: tuple[exp.Expr, ...]


def take_conditions(select: exp.Select) -> tuple[exp.Select, Joined | None]:
    """A SELECT without calls in its join conditions, and the conditions that WHERE cannot take.

    The others move to WHERE. Raises UnsupportedQueryError for the condition of an ASOF join.
    """
    select = select.copy()
    joins: list[exp.Join] = select.args.get("joins") or []
    joined: Joined | None = None
    for at, join in enumerate(joins):
        if not has_call(join.args.get("on")):
            continue
        _check_inner(join)
        with_calls = tuple(_take(join))
        end = _end_of_group(joins, at)
        if not any(map(adds_rows, joins[at + 1 : end])):
            select.where(*with_calls, copy=False)
        elif joined is None or joined.end > start_of_group(joins, at):
            earlier = joined.conditions if joined else ()
            joined = Joined(start_of_group(joins, at), at + 1, (*earlier, *with_calls))
        else:
            raise UnsupportedQueryError(
                "LLM calls are in the join conditions of two items of one FROM clause, with "
                "outer joins after them. Put each item into its own subquery."
            )
    return select, joined


def over_joined(
    select: exp.Select, joined: Joined, names: list[str], sources: Sources
) -> exp.Select:
    """A normalized SELECT over a subquery that does these joins; its columns are `names`.

    Raises UnsupportedQueryError for an unqualified column that several tables have.
    """
    select = select.copy()
    joins: list[exp.Join] = select.args["joins"]
    holder = select.args["from_"] if joined.first < 0 else joins[joined.first]
    inside = joins[joined.first + 1 : joined.end]
    aliases = [table.alias_or_name for table in (holder.this, *(join.this for join in inside))]
    later = joins[joined.end : _end_of_group(joins, joined.end - 1)]
    merged = [name for join in later for name in join.args.get("using") or ()]
    inner = exp.select(*(_struct(alias, sources) for alias in aliases))
    inner.select(*(_only(name, aliases, sources) for name in merged), copy=False)
    inner.set("from_", exp.From(this=holder.this.copy()))
    inner.set("joins", [join.copy() for join in inside])
    inner.where(*joined.conditions, copy=False)
    select.set("joins", [join for join in joins if not any(join is one for one in inside)])
    kept = {name.name.lower() for name in merged}
    for column in list(select.find_all(exp.Column)):
        if not column.table and not in_subquery(column, select):
            _qualify(column, aliases, sources, kept)
    holder.set("this", inner.subquery(ours.JOINED))
    items = [
        exp.alias_(without_alias(item), name, quoted=True)
        for item, name in zip(select.expressions, names, strict=True)
    ]
    select.set("expressions", items)
    return select


def is_inner(join: exp.Join) -> bool:
    """Whether a join with a condition is an inner one."""
    return not join.side and join.kind in ("", "INNER") and not join.method


def _check_inner(join: exp.Join) -> None:
    if not is_inner(join):
        raise UnsupportedQueryError(
            f"An LLM call is in the ON clause of a {join.method} join, which cannot have one. Join "
            "on the other conditions in a subquery and call LLM on its rows."
        )


def _take(join: exp.Join) -> Iterator[exp.Expr]:
    """Remove the conditions with calls from a join and yield them."""
    parts = conjuncts(join.args["on"])
    plain = [part for part in parts if not has_call(part)]
    join.set("on", exp.and_(*plain) if plain else exp.true())
    yield from (part for part in parts if has_call(part))


def adds_rows(join: exp.Join) -> bool:
    """Whether a join adds rows without a match on its left side, or joins by position."""
    return join.side in ("RIGHT", "FULL") or join.method == "POSITIONAL"


def _is_comma(join: exp.Join) -> bool:
    """Whether a join is a comma, which separates whole groups of joins."""
    return not any(join.args.get(key) for key in ("on", "using", "kind", "side", "method"))


def start_of_group(joins: list[exp.Join], at: int) -> int:
    """The index of the join whose table comes first among those joined with join `at`; or -1."""
    return max((index for index in range(at) if _is_comma(joins[index])), default=-1)


def _end_of_group(joins: list[exp.Join], at: int) -> int:
    return next((i for i in range(at + 1, len(joins)) if _is_comma(joins[i])), len(joins))


def _struct(alias: str, sources: Sources) -> exp.Expr:
    """The columns of a table as one struct column named after the table."""
    fields = [
        exp.PropertyEQ(
            this=exp.to_identifier(name, quoted=True),
            expression=exp.column(name, table=alias, quoted=True),
        )
        for name in sources.columns.get(alias, ())
    ]
    if not fields:
        raise UnsupportedQueryError(
            "An LLM call is in a join condition before an outer join, and one of the joined "
            "tables has columns that its name does not qualify. Put the joins before the outer "
            "join into a subquery."
        )
    pack = exp.Anonymous(this="struct_pack", expressions=fields)
    return exp.alias_(pack, alias, quoted=True)


def _only(name: exp.Identifier, aliases: list[str], sources: Sources) -> exp.Expr:
    """A USING column, selected under its own name."""
    column = exp.column(name.copy())
    _qualify(column, aliases, sources, set())
    return exp.alias_(column, name.name, quoted=True)


def _qualify(column: exp.Column, aliases: list[str], sources: Sources, kept: set[str]) -> None:
    """Qualify a column of the joined tables with its table."""
    name = column.name.lower()
    if name in kept:
        return
    found = [alias for alias in aliases if name in map(str.lower, sources.columns.get(alias, ()))]
    if len(found) > 1:
        raise UnsupportedQueryError(
            f"Several tables have the column '{column.name}'. Name its table, as in "
            f"{found[0]}.{column.name}."
        )
    if found:
        column.set("table", exp.to_identifier(found[0], quoted=True))
        column.meta.setdefault(FIELD_NAME, column.name)
