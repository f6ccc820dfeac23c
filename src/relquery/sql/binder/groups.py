"""Functions of several rows: AI_AGG and AI_SUMMARIZE_AGG over a group, AI_RANK over all rows.

AI_AGG('What do people praise?', review)  =>  a call with the list of the group's reviews
AI_RANK('most urgent', text)              =>  rank() over the scores; in ORDER BY, the scores
"""

from __future__ import annotations

from dataclasses import replace

from relquery.errors import QueryError
from relquery.sql.binder.arguments import BAG, Arguments
from relquery.sql.binder.call import FIELD_NAME, RANKS
from relquery.sql.binder.making import Made, Maker, no_bag
from relquery.sql.binder.naming import field_name
from relquery.sql.binder.prompts import Asked, of_text
from relquery.sql.binder.rows import score
from relquery.sql.binder.settings import check_done, drawn
from relquery.sql.binder.task import Task
from relquery.sql.exchange.distinct import distinct_names
from relquery.sql.parser import build
from relquery.sql.parser.tree import (
    Argument,
    Expression,
    Function,
    Join,
    Node,
    Order,
    Ordered,
    Query,
    Select,
    Star,
    Window,
)

_SUMMARIZE = "Summarize the texts."


def aggregate(given: Arguments, maker: Maker) -> Made:
    """AI_AGG('question', field, ...) or AI_AGG(field, 'question'): one answer for a group."""
    return _of_group(given, maker, given.option("instruction", (str,), "a text") or given.take(str))


def summarize(given: Arguments, maker: Maker) -> Made:
    """AI_SUMMARIZE_AGG(field, ...): a summary of a group."""
    text = given.take(str)
    if text is not None:
        written = text.replace("'", "''")
        raise QueryError(
            f"{given.written} has the text {text!r} among its fields. To say what to do with the "
            f"group, write AI_AGG('{written}', column)."
        )
    return _of_group(given, maker, given.option("instruction", (str,), "a text", _SUMMARIZE))


def rank(given: Arguments, maker: Maker) -> Made:
    """AI_RANK('criterion', field, ...): 1 for the row that fits best.

    The rows are ordered by how likely the model finds that they fit. As a key of ORDER BY it is
    that order itself.
    """
    _check_place(given, maker)
    criterion = given.take(str)
    if criterion is None:
        raise QueryError(
            f"{given.written} has no criterion. Expected AI_RANK('most urgent', column, ...)."
        )
    given.nodes.insert(0, build.text(f"Is this a good match for: {criterion}?"))
    value = score(given, maker).value
    if _is_key_of_query(maker.node):
        return Made(build.operator("-", build.number(1), value), "DOUBLE")
    window = Window(
        type="WINDOW_RANK",
        function_name="rank",
        orders=[Ordered(type="DESCENDING", null_order="NULLS LAST", expression=value)],
        start="UNBOUNDED_PRECEDING",
        end="CURRENT_ROW_RANGE",
    )
    ranks = build.when(build.operation(build.IS_NOT_NULL, value.copy()), window)
    ranks.meta[RANKS] = True
    return Made(ranks, "BIGINT")


def _check_place(given: Arguments, maker: Maker) -> None:
    """Raises QueryError where a row has no rank yet, or where it may be of another group."""
    node: Node = maker.node
    for parent in maker.node.ancestors():
        if isinstance(parent, Select):
            where = _CLAUSES.get(node.place)
        elif isinstance(parent, Join):
            where = "the condition of a join"
        elif isinstance(parent, Window):
            where = "a window function"
        elif isinstance(parent, Function) and maker.is_aggregate(parent):
            where = "an aggregate"
        else:
            node = parent
            continue
        if where is not None:
            raise QueryError(
                f"{given.written} is in {where}, where rows have no rank yet. Write QUALIFY "
                "AI_RANK(...) <= 10, compute the rank in a subquery, or use AI_SCORE."
            )
        return


_CLAUSES = {"where_clause": "WHERE", "having": "HAVING", "group_expressions": "GROUP BY"}


def _is_key_of_query(node: Node) -> bool:
    key = node.parent
    order = key.parent if isinstance(key, Ordered) else None
    return isinstance(order, Order) and isinstance(order.parent, Query)


def _of_group(given: Arguments, maker: Maker, question: str | None) -> Made:
    if question is None:
        raise QueryError(
            f"{given.written} has no question. Expected AI_AGG('What do people praise?', column)."
        )
    for node in given.nodes:
        if node.meta.get(BAG):
            raise no_bag(node)
    sampling = replace(drawn(given, maker.defaults), labels=())
    check_done(given, "instruction")
    items = _items(given)
    listed = build.function("array_agg", items)
    listed.distinct = given.is_distinct
    listed.set("order_bys", Order(orders=[key.copy() for key in given.order]))
    own = [] if maker.node.filter is None else [maker.node.filter.copy()]
    listed.filter = build.all_of([*own, build.operation(build.IS_NOT_NULL, items.copy())])
    listed.meta[FIELD_NAME] = "texts"
    asked = of_text(question, [], lambda column: False, given.written)
    asked = Asked(asked.query, (listed,), asked.notes)
    task = Task(asked.query, sampling, kind="group", function=given.function)
    call = maker.answered(task, asked).value
    has_rows = build.operation(build.IS_NOT_NULL, listed.copy())
    return Made(build.when(has_rows, call), "VARCHAR")


def _items(given: Arguments) -> Expression:
    """What one row gives."""
    fields = given.nodes
    if not fields:
        raise QueryError(f"{given.written} has no field. Expected AI_AGG('question', column).")
    if len(fields) == 1:
        return _whole(fields[0])
    names = distinct_names([one.meta.get(FIELD_NAME) or field_name(one) for one in fields])
    made = build.function("struct_pack")
    made.arguments = [
        Argument(name=name, expression=field.copy())
        for name, field in zip(names, fields, strict=True)
    ]
    return made


def _whole(field: Expression) -> Expression:
    """`t.*` as the row of t as one value."""
    if isinstance(field, Star) and field.table:
        return build.column(field.table)
    return field.copy()
