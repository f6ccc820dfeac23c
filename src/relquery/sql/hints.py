"""Which labels a call could be given: the texts that its answers are compared with, and no other.

WHERE LLM('Positive?', review) = 'Yes'  =>  ('Yes', 'No')
"""

from __future__ import annotations

import sqlglot
from sqlglot import exp

from relquery.sql.plan import PlannedCall, SelectPlan, answer_column
from relquery.sql.source import DIALECT

_OPPOSITES = {"yes": "no", "no": "yes", "true": "false", "false": "true"}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.In)


def labels_of(call: PlannedCall, plan: SelectPlan) -> tuple[str, ...]:
    """Texts that the answers to a call are compared with, in the order given.

    Empty if some place reads the answer itself, so that labels would change what the query gives.
    """
    name = answer_column(call.index, number=False)
    written = [one.predicate for one in plan.filters] + [plan.final]
    written += [part.sql for other in plan.calls for part in other.fields]
    texts: dict[str, None] = {}
    for sql in written:
        for column in sqlglot.parse_one(sql, dialect=DIALECT).find_all(exp.Column):
            if column.name == answer_column(call.index, number=True):
                return ()
            if column.name == name:
                compared = _compared_with(column)
                if not compared:
                    return ()
                texts |= dict.fromkeys(compared)
    return tuple(texts)


def hint(labels: tuple[str, ...]) -> str:
    """What to add to a call, so that its answer is one of some texts."""
    shown = [*labels]
    if len(labels) == 1:
        shown.append(_opposite(labels[0]) or "...")
    listing = ", ".join(
        text if text == "..." and text not in labels else _quoted(text) for text in shown
    )
    return f"add labels := [{listing}]"


def _compared_with(column: exp.Column) -> list[str]:
    """The string literals of the comparison that a column is a side of; empty if it is not."""
    node: exp.Expr = column
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    comparison = node.parent
    if not isinstance(comparison, _COMPARISONS) or comparison.args.get("query"):
        return []
    others = [other for other in comparison.iter_expressions() if other is not node]
    if not all(isinstance(other, exp.Literal) and other.is_string for other in others):
        return []
    return [other.name for other in others]


def _opposite(label: str) -> str | None:
    other = _OPPOSITES.get(label.lower())
    if other is None:
        return None
    if label.isupper():
        return other.upper()
    return other.capitalize() if label[0].isupper() else other


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
