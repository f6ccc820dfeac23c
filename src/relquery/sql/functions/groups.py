"""Functions of several rows: AI_AGG and AI_SUMMARIZE_AGG over a group, AI_RANK over all rows.

AI_AGG('What do people praise?', review)  =>  a call with the list of the group's reviews
AI_RANK('most urgent', text)              =>  rank() over the scores; in ORDER BY, the scores
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from relquery.errors import QueryError
from relquery.sql.functions.arguments import BAG, Arguments
from relquery.sql.functions.making import Made, Maker, no_bag
from relquery.sql.functions.naming import field_name
from relquery.sql.functions.prompts import Asked, of_text
from relquery.sql.functions.rows import score
from relquery.sql.functions.settings import check_done, drawn
from relquery.sql.functions.task import Task
from relquery.sql.read.source import FIELD_NAME, RANKS

_SUMMARIZE = "Summarize the texts."


def aggregate(given: Arguments, maker: Maker) -> Made:
    """AI_AGG('question', field, ...) or AI_AGG(field, 'question'): one answer for a group."""
    return _of_group(given, maker, given.option("instruction", (str,), "a text") or given.take(str))


def summarize(given: Arguments, maker: Maker) -> Made:
    """AI_SUMMARIZE_AGG(field, ...): a summary of a group."""
    text = given.take(str)
    if text is not None:
        raise QueryError(
            f"{given.written} has the text {text!r} among its fields. To say what to do with the "
            f"group, write AI_AGG({exp.Literal.string(text)}, column)."
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
    question = exp.Literal.string(f"Is this a good match for: {criterion}?")
    given.nodes.insert(0, question)
    value = score(given, maker).value
    if isinstance(maker.node.parent, exp.Ordered) and _is_of_select(maker.node.parent):
        return Made(exp.Sub(this=exp.Literal.number(1), expression=value), "DOUBLE")
    order = exp.Order(expressions=[exp.Ordered(this=value, desc=True, nulls_first=False)])
    window = exp.Window(this=exp.Anonymous(this="rank"), order=order)
    is_known = exp.Not(this=exp.Is(this=value.copy(), expression=exp.null()))
    ranks = exp.Case(ifs=[exp.If(this=is_known, true=window)])
    ranks.meta[RANKS] = True
    return Made(ranks, "BIGINT", is_window=True)


def _check_place(given: Arguments, maker: Maker) -> None:
    """Raises QueryError where a row has no rank yet, or where it may be of another group."""
    inside = maker.node.find_ancestor(
        exp.Where, exp.Having, exp.Group, exp.Join, exp.AggFunc, exp.Window, exp.Select
    )
    if inside is not None and not isinstance(inside, exp.Select):
        raise QueryError(
            f"{given.written} is in {_PLACES.get(type(inside), 'an aggregate')}, where rows have "
            "no rank yet. Write QUALIFY AI_RANK(...) <= 10, compute the rank in a subquery, or use "
            "AI_SCORE."
        )


_PLACES: dict[type[exp.Expr], str] = {
    exp.Where: "WHERE",
    exp.Having: "HAVING",
    exp.Group: "GROUP BY",
    exp.Join: "the condition of a join",
    exp.Window: "a window function",
}


def _is_of_select(key: exp.Ordered) -> bool:
    return isinstance(key.parent, exp.Order) and isinstance(key.parent.parent, exp.Query)


def _of_group(given: Arguments, maker: Maker, question: str | None) -> Made:
    if question is None:
        raise QueryError(
            f"{given.written} has no question. Expected AI_AGG('What do people praise?', column)."
        )
    for node in given.nodes:
        if node.meta_get(BAG):
            raise no_bag(node)
    sampling = replace(drawn(given, maker.defaults), labels=())
    check_done(given, "instruction")
    items, order = _items(given), given.order
    whole: exp.Expr = items
    if given.is_distinct:
        whole = exp.Distinct(expressions=[whole])
    if order is not None:
        whole = exp.Order(this=whole, expressions=order)
    condition: exp.Expr = exp.Not(this=exp.Is(this=items.copy(), expression=exp.null()))
    if isinstance(maker.node.parent, exp.Filter):
        condition = exp.and_(maker.node.parent.expression.this, condition)
    listed = exp.Filter(this=exp.ArrayAgg(this=whole), expression=exp.Where(this=condition))
    listed.meta[FIELD_NAME] = "texts"
    asked = of_text(question, [], lambda column: False, given.written)
    asked = Asked(asked.query, (listed,), asked.notes)
    task = Task(asked.query, sampling, kind="group", function=given.function)
    call = maker.answered(task, asked).value
    has_rows = exp.Not(this=exp.Is(this=listed.copy(), expression=exp.null()))
    return Made(exp.Case(ifs=[exp.If(this=has_rows, true=call)]), "VARCHAR")


def _items(given: Arguments) -> exp.Expr:
    """What one row gives."""
    fields = given.nodes
    if not fields:
        raise QueryError(f"{given.written} has no field. Expected AI_AGG('question', column).")
    if len(fields) == 1:
        return _whole(fields[0])
    parts = [
        exp.PropertyEQ(
            this=exp.to_identifier(field.meta_get(FIELD_NAME) or field_name(field), quoted=True),
            expression=field.copy(),
        )
        for field in fields
    ]
    return exp.Struct(expressions=parts)


def _whole(field: exp.Expr) -> exp.Expr:
    """`t.*` as the row of t as one value."""
    if isinstance(field, exp.Column) and isinstance(field.this, exp.Star):
        return exp.column(field.args["table"].copy())
    return field.copy()
