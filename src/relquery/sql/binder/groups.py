"""Functions of several rows: AI_AGG and AI_SUMMARIZE_AGG over a group, AI_RANK over all rows.

AI_AGG('What do people praise?', review)  =>  a call with the list of the group's reviews
AI_RANK('most urgent', text)              =>  rank() over the scores; in ORDER BY, the scores
"""

from __future__ import annotations

from dataclasses import replace

from relquery.errors import QueryError
from relquery.sql.binder.arguments import BAG, LlmFunction, no_bag
from relquery.sql.binder.call import FIELD_NAME, RANKS, field_name
from relquery.sql.binder.prompts import prompt_of
from relquery.sql.binder.rows import score
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

_CLAUSES = {"where_clause": "WHERE", "having": "HAVING", "group_expressions": "GROUP BY"}


def aggregate(given: LlmFunction) -> Expression:
    """AI_AGG('question', field, ...) or AI_AGG(field, 'question'): one answer for a group."""
    question = given.option("instruction") or given.take(str)
    if question is None:
        raise QueryError(
            f"{given.written} has no question. Expected AI_AGG('What do people praise?', column)."
        )
    return _of_group(given, question)


def summarize(given: LlmFunction) -> Expression:
    """AI_SUMMARIZE_AGG(field, ...): a summary of a group."""
    text = given.take(str)
    if text is not None:
        written = text.replace("'", "''")
        raise QueryError(
            f"{given.written} has the text {text!r} among its fields. To say what to do with the "
            f"group, write AI_AGG('{written}', column)."
        )
    return _of_group(given, given.option("instruction", "Summarize the texts."))


def rank(given: LlmFunction) -> Expression:
    """AI_RANK('criterion', field, ...): 1 for the row that fits best.

    The rows are ordered by how likely the model finds that they fit. As a key of ORDER BY it is
    that order itself.
    """
    _check_place(given)
    criterion = given.take(str)
    if criterion is None:
        raise QueryError(
            f"{given.written} has no criterion. Expected AI_RANK('most urgent', column, ...)."
        )
    given.nodes.insert(0, build.text(f"Is this a good match for: {criterion}?"))
    value = score(given)
    key = given.node.parent
    order = key.parent if isinstance(key, Ordered) else None
    if isinstance(order, Order) and isinstance(order.parent, Query):
        return build.operator("-", build.number(1), value)
    window = Window(
        type="WINDOW_RANK",
        function_name="rank",
        orders=[Ordered(type="DESCENDING", null_order="NULLS LAST", expression=value)],
        start="UNBOUNDED_PRECEDING",
        end="CURRENT_ROW_RANGE",
    )
    ranks = build.when(build.operation(build.IS_NOT_NULL, value.copy()), window)
    ranks.meta[RANKS] = True
    return ranks


def _check_place(given: LlmFunction) -> None:
    """Raises QueryError where a row has no rank yet, or where it may be of another group."""
    node: Node = given.node
    for parent in given.node.ancestors():
        if isinstance(parent, Select):
            where = _CLAUSES.get(node.place)
        elif isinstance(parent, Join):
            where = "the condition of a join"
        elif isinstance(parent, Window):
            where = "a window function"
        elif isinstance(parent, Function) and given.is_aggregate(parent):
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


def _of_group(given: LlmFunction, question: str) -> Expression:
    for field in given.nodes:
        if field.meta.get(BAG):
            raise no_bag(field)
    node, items = given.node, _items(given)
    listed = build.function("array_agg", items)
    listed.distinct = node.distinct
    listed.set("order_bys", Order(orders=[key.copy() for key in node.orders]))
    own = [] if node.filter is None else [node.filter.copy()]
    listed.filter = build.all_of([*own, build.operation(build.IS_NOT_NULL, items.copy())])
    listed.meta[FIELD_NAME] = "texts"
    # The question stands for itself: the names in it mean no fields.
    given.nodes, given.knows = [], lambda column: False
    prompt = replace(prompt_of(question, given), fields=(listed,))
    call = given.call(prompt, replace(given.sampling(), labels=()), kind="group")
    return build.when(build.operation(build.IS_NOT_NULL, listed.copy()), call)


def _items(given: LlmFunction) -> Expression:
    """What one row gives."""
    if not given.nodes:
        raise QueryError(f"{given.written} has no field. Expected AI_AGG('question', column).")
    first, *others = given.nodes
    if not others:  # `t.*` is the row of t as one value
        is_row = isinstance(first, Star) and first.table
        return build.column(first.table) if is_row else first.copy()
    names = distinct_names([one.meta.get(FIELD_NAME) or field_name(one) for one in given.nodes])
    made = build.function("struct_pack")
    made.arguments = [
        Argument(name=name, expression=one.copy())
        for name, one in zip(names, given.nodes, strict=True)
    ]
    return made
