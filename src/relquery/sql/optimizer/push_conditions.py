"""Conditions drop rows before the calls of these rows are made.

Those on the columns of a derived table or WITH entry with calls go into its query:

SELECT id FROM (SELECT id, price, LLM('...', text) AS a FROM t) WHERE price < 20 AND a = 'x'
=> SELECT id FROM (SELECT id, price, LLM('...', text) AS a FROM t
                   WHERE price < 20 AND LLM('...', text) = 'x')

An entry with several readers gets what any of them needs; each reader keeps its own conditions:

WITH c AS (SELECT k, LLM(...) AS a FROM t)
SELECT a FROM c WHERE k = 1 UNION ALL SELECT a FROM c WHERE k = 2
=> WITH c AS (SELECT k, LLM(...) AS a FROM t WHERE k = 1 OR k = 2) ...

Where a window sees rows that the condition drops, they are its QUALIFY.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from relquery.sql import names as ours
from relquery.sql.binder.call import OF_BRANCH, calls_in, has_call
from relquery.sql.binder.functions import (
    FunctionCatalog,
    has_lambda,
    has_window,
    makes_rows,
    outermost_queries,
    own_nodes,
)
from relquery.sql.binder.normalize import has_grouping_sets, keys_of, unnamed
from relquery.sql.binder.sources import Sources, canonical
from relquery.sql.binder.stand_ins import needs_number
from relquery.sql.optimizer.reads import (
    Lookup,
    Place,
    Read,
    Reader,
    adds_rows,
    carried,
    condition_of,
    is_inner,
    joins_around,
    reads_in,
    restored,
)
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import Column, Expression, Join, Node, Query, Select, SetOperation

_DONE = "pushed"
"""Note on a condition that is in the query too, or cannot be, and on a query with those of several
readers."""
_MOVED = "moved"
"""Note on a condition that was moved into a query: its calls were in the select list before."""
MATCHES = "matches"
"""Note on a condition that other tables have a value, of the same type: no row makes it fail."""
_MET = "met"
"""Note on a SELECT or join: conditions that were moved out of it, which its rows still meet."""


def push_conditions(statement: Query, lookup: Lookup) -> bool:
    """The rule of this module; see `rules`."""
    for read in reads_in(statement):
        if len(read.readers) == 1:
            for holder, node, over in _movable(read, read.readers[0], lookup):
                if add_condition(read.query, over, lookup):
                    kept = [part for part in _held(holder) if part is not node]
                    if node.find(Query) is None:
                        holder.meta[_MET] = [*holder.meta.get(_MET, ()), node]
                    if isinstance(holder, Join):
                        holder.condition = build.all_of(kept)
                    else:
                        holder.where = condition_of(kept)
                else:
                    node.meta[_DONE] = True
                return True
        elif read.readers and _DONE not in read.query.meta:
            read.query.meta[_DONE] = True
            own = (conditions_of(read, reader, lookup) for reader in read.readers)
            if leave_needed(read.query, own, lookup):
                return True
    return False


def conditions_of(read: Read, reader: Reader, lookup: Lookup) -> list[Expression]:
    """The conditions on a query that one of its readers has, over its columns."""
    return [over for *_, over in _movable(read, reader, lookup)]


def met_by(holder: Select | Join) -> list[Expression]:
    """The conditions that the rows of a SELECT or the pairs of a join meet."""
    return [*_held(holder), *holder.meta.get(_MET, ())]


def leave_needed(query: Query, per_reader: Iterable[Iterable[Expression]], lookup: Lookup) -> bool:
    """Leave the rows of a query that one of its readers needs, which are those that meet all of its
    conditions. Returns whether each reader has some that read no answers."""
    needed = [
        [condition for condition in conditions if not _reads_answers(query, condition, lookup)]
        for conditions in per_reader
    ]
    if all(needed):
        add_condition(query, build.any_of(map(build.all_of, needed)), lookup)
    return all(needed)


def _movable(
    read: Read, reader: Reader, lookup: Lookup
) -> Iterator[tuple[Select | Join, Expression, Expression]]:
    """The conditions that may go into a query: what has them, they, and they over its columns."""
    held = [(holder, node) for holder in _holders(reader) for node in _held(holder)]
    held = [(holder, node) for holder, node in held if _DONE not in node.meta]
    sources = lookup.sources(reader.select) if held and reader.select.sample is None else None
    place = None if sources is None else read.places(reader, lookup, sources)
    if sources is None or place is None:
        return
    for holder, node in held:
        over = _over(restored(node, sources), place, lookup)
        queries = [] if over is None else outermost_queries(over)
        is_same = all(
            carried(query, reader.select, read.query, lookup) is query for query in queries
        )
        if over is not None and is_same:
            yield holder, node, over


def _held(holder: Select | Join) -> list[Expression]:
    return build.conjuncts(holder.where if isinstance(holder, Select) else holder.condition)


def _holders(reader: Reader) -> Iterator[Select | Join]:
    """Where conditions on a table drop rows of the table alone."""
    for inner, join in joins_around(reader.item):
        if adds_rows(join, inner):
            if join.method == "REGULAR" and join.kind != "FULL":
                yield join  # rows of this side that do not meet it have no match
            return
        if is_inner(join):
            yield join
    yield reader.select


def _over(node: Expression, place: Place, lookup: Lookup) -> Expression | None:
    """A condition over the columns of a query; None if it reads anything else."""
    functions = lookup.functions
    if has_call(node) or functions.is_volatile(node) or has_lambda(node):
        return None
    queries = outermost_queries(node)
    if functions.has_query(node) and not (queries and all(map(lookup.stands_alone, queries))):
        return None
    places = [place(column) for column in own_nodes(node) if isinstance(column, Column)]
    if not (places or queries) or None in places:
        return None

    def over(part: Node) -> Node | None:
        if not isinstance(part, Column) or (index := place(part)) is None:
            return part.copy() if isinstance(part, Query) else None
        return build.column(ours.column(index)).named(part.alias)

    moved = node.rebuilt(over)
    assert isinstance(moved, Expression)
    return moved


def add_condition(query: Query, condition: Expression, lookup: Lookup) -> bool:
    """Add a condition to a query, in place; it reads column i of the query as `ours.column(i)`.

    Returns whether all rows of the query now meet the condition. If not, some of the rows that do
    not meet it may be gone, but no others.
    """
    if query.limit is not None:
        return False
    if len(parts := build.conjuncts(condition)) > 1:
        meets = [add_condition(query, part, lookup) for part in parts]
        return all(meets)
    if isinstance(query, SetOperation):
        return _add_to_branches(query, condition, lookup)
    return isinstance(query, Select) and _add_to_select(query, condition, lookup)


def _reads_answers(query: Query, condition: Expression, lookup: Lookup) -> bool:
    """Whether a condition reads a column that a SELECT of the query computes with a call."""
    if isinstance(query, SetOperation):
        return any(_reads_answers(branch, condition, lookup) for branch in query.branches)
    items = lookup.items(query) if isinstance(query, Select) else None
    return items is None or any(has_call(items[index]) for index in _read_by(condition))


def _read_by(condition: Expression) -> list[int]:
    """The numbers of the columns that a condition reads."""
    names = (column.name for column in own_nodes(condition) if isinstance(column, Column))
    return [int(name.rpartition("_")[2]) for name in names]


def _add_to_branches(query: SetOperation, condition: Expression, lookup: Lookup) -> bool:
    """`(a UNION b) WHERE c` => `a WHERE c UNION b WHERE c`, with columns by position."""
    whole, *branches = map(lookup.columns, (query, *query.branches))
    if query.kind == "UNION_BY_NAME" or whole is None:
        return False
    read = _read_by(condition)
    if any(of is None or any(of[index][1] != whole[index][1] for index in read) for of in branches):
        return False  # the branch's values are cast before they can be compared
    for part in condition.walk():
        part.meta[OF_BRANCH] = True
    meets = [add_condition(branch, condition, lookup) for branch in query.branches]
    if query.kind == "EXCEPT":
        return meets[0]
    return any(meets) if query.kind == "INTERSECT" else all(meets)


def _add_to_select(select: Select, condition: Expression, lookup: Lookup) -> bool:
    rewritten = None if select.sample is not None else lookup.normal(select)
    if rewritten is None or lookup.functions.is_volatile(select):
        return False
    normal, sources = rewritten
    items = [unnamed(item) for item in normal.items]
    used = [items[index] for index in dict.fromkeys(_read_by(condition))]

    def put(node: Node) -> Node | None:
        if not isinstance(node, Column):
            return node.copy() if isinstance(node, Query) else None
        return items[_read_by(node)[0]].copy().named(node.alias)

    moved = condition.rebuilt(put)
    assert isinstance(moved, Expression)
    clause = _clause_for(used, normal, sources, lookup.functions) if used else "where_clause"
    if clause is None or not _keeps_calls(moved, used, select):
        return False
    later = [select.args.get(each) for each in _CLAUSES[_CLAUSES.index(clause) :]]
    if not any(map(has_call, later)) or _is_match(moved):
        for part in build.conjuncts(moved):
            part.meta[_MOVED] = True
        _add(select, clause, moved)
        is_of_rows = bool(normal.keys) and not has_grouping_sets(normal)
        return bool(used) or is_of_rows or not lookup.functions.in_select(normal)
    if clause == "where_clause" and not has_call(moved) and moved.find(Query) is None:
        safe = build.operation(build.TRY, moved)
        _add(select, clause, build.operation(build.COALESCE, safe, build.boolean(True)))
    return False


_CLAUSES = ("where_clause", "having", "qualify")


def _is_match(condition: Expression) -> bool:
    """Whether a condition fails for no row, so that it may be computed for those that calls drop
    first."""
    if isinstance(condition, tree.Conjunction):
        return all(map(_is_match, condition.operands))
    return MATCHES in condition.meta


def _add(select: Select, clause: str, condition: Expression) -> None:
    """Add a condition to WHERE, HAVING or QUALIFY, without what the clause already has."""
    own = build.conjuncts(select.args.get(clause))
    known = {part.key for part in own}
    new = (part for part in build.conjuncts(condition) if part.key not in known)
    select.set(clause, build.all_of([*own, *new]))


def _clause_for(
    used: list[Expression], normal: Select, sources: Sources, functions: FunctionCatalog
) -> str | None:
    """The clause of a normalized SELECT for a condition over some of its expressions; None if it
    must stay outside."""

    def texts(nodes: Iterable[Expression]) -> set[str]:
        return {canonical(node, sources) for node in nodes}

    windows = [
        window for window in normal.find_all(tree.Window) if window.ancestor(Select) is normal
    ]
    # What divides the rows wherever the SELECT looks at several of them.
    divided = [texts(window.partitions) for window in windows]
    picks = normal.distinct.on if normal.distinct is not None else []
    read, is_open = texts(used), any(map(makes_rows, normal.items))
    is_open |= any(map(functions.has_query, used))
    if is_open or not (not picks or read <= texts(picks)):
        return None
    if any(map(has_window, used)) or not all(read <= each for each in divided):
        is_plain = not (picks or functions.in_select(normal) or any(map(has_call, used)))
        return "qualify" if windows and is_plain else None
    if not functions.in_select(normal):
        return "where_clause"
    keys = texts(keys_of(normal, functions))
    if not keys or has_grouping_sets(normal):
        return None
    if read <= keys:
        return "where_clause"

    def is_of_group(part: Expression) -> bool:
        """Whether HAVING reads an expression as the select list does. There a name outside of
        aggregates may mean an item of the list."""
        if isinstance(part, Column):
            return canonical(part, sources) in keys
        columns = part.find_all(Column)
        is_folded = functions.has_aggregate(part) and not has_call(part)
        return is_folded and all(functions.around(column, normal) for column in columns)

    return "having" if all(map(is_of_group, used)) else None


def _keeps_calls(put: Expression, used: list[Expression], select: Select) -> bool:
    """Whether the calls of a condition are read as in the select list, and cost nothing more.

    They could cost more next to another filter with calls, which may leave fewer rows.
    """
    as_item = {call.number: needs_number(call) for part in used for call in calls_in(part)}
    if any(needs_number(call) != as_item[call.number] for call in calls_in(put)):
        return False
    filters = [*build.conjuncts(select.where), *build.conjuncts(select.having)]
    is_first = all(_MOVED in part.meta for part in filters if has_call(part))
    return is_first or not has_call(put)
