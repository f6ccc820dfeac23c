"""How far answers are asked for: what the places that read them need, and what equal calls share.

WHERE LLM('Positive?', review) = 'Yes'  =>  stop decoding an answer that does not start like 'Yes'
AI_FILTER('Late?', a), AI_SCORE('Late?', a)  =>  one request gives both
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from relquery.errors import QueryError, did_you_mean
from relquery.ledger import has_one_answer
from relquery.prompt import Compared, Sampling
from relquery.sql import names as ours
from relquery.sql.binder.arguments import literal_of
from relquery.sql.binder.call import OF_BRANCH
from relquery.sql.binder.stand_ins import compared_in
from relquery.sql.parser import build
from relquery.sql.parser.tree import Between, Column, Comparison, Node, Operator
from relquery.sql.planner.plan import PlannedCall, SelectPlan


def with_compared(plans: Sequence[SelectPlan]) -> list[SelectPlan]:
    """The plans of a statement, in which calls whose answers are only compared with texts have
    `Compared` sampling. Those that ask the same are compared with the same texts, so that equal
    inputs are asked once. Labels, typed answers and answers drawn at random are read whole.

    Raises QueryError where an answer is compared with texts of which none is a label.
    """
    texts: dict[tuple[str, int], tuple[str, ...]] = {}
    shared: dict[object, tuple[str, ...]] = {}
    for plan in plans:
        for call in plan.calls:
            _check_labels(call, plan)
            is_open = not call.sampling.labels and not call.task.output
            compared = list(_comparisons_of(call, plan)) if is_open else [[]]
            if all(compared) and has_one_answer(call.sampling):
                own = tuple(dict.fromkeys(chain(*compared)))
                texts[plan.table, call.index] = own
                known = shared.get(_asks(call), ())
                shared[_asks(call)] = tuple(dict.fromkeys((*known, *own)))

    def noted(call: PlannedCall, plan: SelectPlan) -> PlannedCall:
        if not texts.get((plan.table, call.index)):
            return call
        return _with_sampling(call, Compared.by(call.sampling, shared[_asks(call)]))

    return [replace(one, calls=tuple(noted(call, one) for call in one.calls)) for one in plans]


def with_scores(plans: Sequence[SelectPlan]) -> list[SelectPlan]:
    """The plans of a statement, in which a call for a label weighs the labels if another one does:
    then one request gives both."""
    calls = [call for plan in plans for call in plan.calls]
    weighed = {_asks(call) for call in calls if call.task.kind == "score"}

    def equal(call: PlannedCall) -> PlannedCall:
        if not call.sampling.labels or call.sampling.temperature > 0:
            return call
        scored = _with_sampling(call, replace(call.sampling, scored=True))
        of_score = replace(scored, task=replace(scored.task, kind="score"))
        return scored if _asks(of_score) in weighed else call

    return [replace(plan, calls=tuple(map(equal, plan.calls))) for plan in plans]


def _with_sampling(call: PlannedCall, sampling: Sampling) -> PlannedCall:
    return replace(call, task=replace(call.task, sampling=sampling))


def _asks(call: PlannedCall) -> object:
    """Equal for calls that ask the same."""
    return call.task.query, call.sampling, call.task.kind, tuple(one.name for one in call.fields)


def _check_labels(call: PlannedCall, plan: SelectPlan) -> None:
    labels = call.sampling.labels
    for texts in _comparisons_of(call, plan, own=True) if labels else ():
        if texts and not {"", *labels}.intersection(texts):
            raise QueryError(
                f"{call.text} is compared with {', '.join(map(repr, texts))}, but its labels "
                f"are {', '.join(map(repr, labels))}.{did_you_mean(texts[0], labels)}"
            )


def _comparisons_of(
    call: PlannedCall, plan: SelectPlan, *, own: bool = False
) -> Iterator[list[str]]:
    """For each place that reads the answers to a call, the texts that it compares them with; none
    if it does not clearly compare them.

    own: without comparisons with the values of a set operation.
    """
    read: list[Node] = [plan.base, plan.final, *(one.predicate for one in plan.filters)]
    read += [] if plan.cut is None else [plan.cut.select]
    places = (place for part in plan.parts for each in part.places.values() for place in each)
    read += [condition.holds for place in places for condition in place]
    read += [part.value for other in plan.calls for part in other.fields]
    for column in (one for tree in read for one in tree.find_all(Column)):
        comparison = column.ancestor(Comparison, Operator) if own else None
        is_of_branch = comparison is not None and OF_BRANCH in comparison.meta
        if ours.call_of(column.name) == call.index and not is_of_branch:
            yield _compared_with(column)


def _compared_with(column: Column) -> list[str]:
    """The string literals that a column is compared with; empty if it is not compared."""
    comparison = column.parent
    sides = compared_in(comparison)
    is_order = isinstance(comparison, Comparison) and comparison.kind not in _EQUALITY
    if sides is None or is_order or isinstance(comparison, Between):
        return []
    texts = [literal_of(side) for side in sides if side is not column]
    return texts if all(isinstance(text, str) for text in texts) else []


_EQUALITY = (build.EQUAL, build.UNEQUAL)
