"""Calls whose answers are only compared with texts, so a few tokens decide the comparison.

WHERE LLM('Positive?', review) = 'Yes'  =>  stop decoding an answer that does not start like 'Yes'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from relquery.errors import QueryError, did_you_mean
from relquery.ledger import has_one_answer
from relquery.prompt import Compared
from relquery.sql import names as ours
from relquery.sql.binder.arguments import literal_of
from relquery.sql.binder.call import OF_BRANCH
from relquery.sql.parser import build
from relquery.sql.parser.tree import Column, Comparison, Node, Operator
from relquery.sql.planner.plan import PlannedCall, SelectPlan


def note_compared(plan: SelectPlan) -> SelectPlan:
    """The plan with `Compared` sampling for such calls; calls with labels are unchanged."""
    return replace(plan, calls=tuple(_noted(call, plan) for call in plan.calls))


def with_scores(plans: Sequence[SelectPlan]) -> list[SelectPlan]:
    """The plans of a statement, in which a call for a label weighs the labels if another one does:
    then one request gives both.

    AI_FILTER('Late?', a), AI_SCORE('Late?', a)
    """
    calls = [call for plan in plans for call in plan.calls]
    weighed = {_asks(call) for call in calls if call.task.kind == "score"}

    def equal(call: PlannedCall) -> PlannedCall:
        if not call.sampling.labels or call.sampling.temperature > 0:
            return call
        task = replace(call.task, sampling=replace(call.sampling, scored=True))
        scored = replace(call, task=task)
        of_score = replace(scored, task=replace(task, kind="score"))
        return scored if _asks(of_score) in weighed else call

    return [replace(plan, calls=tuple(map(equal, plan.calls))) for plan in plans]


def with_equal_texts(plans: Sequence[SelectPlan]) -> list[SelectPlan]:
    """The plans of a statement, in which calls that ask the same are compared with the same texts,
    so that equal inputs are asked once. Where answers are drawn at random, they are read whole.
    """
    calls = [call for plan in plans for call in plan.calls]
    texts: dict[object, tuple[str, ...]] = {}
    for call in calls:
        known = texts.setdefault(_asks(call), ())
        if isinstance(call.sampling, Compared):
            texts[_asks(call)] = tuple(dict.fromkeys((*known, *call.sampling.texts)))

    def equal(call: PlannedCall) -> PlannedCall:
        if not isinstance(call.sampling, Compared):
            return call
        sampling = call.sampling.whole
        if has_one_answer(sampling):
            sampling = Compared.by(sampling, texts[_asks(call)])
        return replace(call, task=replace(call.task, sampling=sampling))

    return [replace(plan, calls=tuple(map(equal, plan.calls))) for plan in plans]


def _asks(call: PlannedCall) -> object:
    """Equal for calls that differ at most in what their answers are compared with."""
    sampling = call.sampling
    plain = sampling.whole if isinstance(sampling, Compared) else sampling
    return call.task.query, plain, call.task.kind, tuple(one.name for one in call.fields)


def check_labels(plan: SelectPlan) -> None:
    """Raises QueryError where an answer is compared with texts of which none is a label."""
    for call in plan.calls:
        labels = call.sampling.labels
        for texts in _comparisons_of(call, plan, own=True) if labels else ():
            if texts and not {"", *labels}.intersection(texts):
                raise QueryError(
                    f"{call.text} is compared with {', '.join(map(repr, texts))}, but its labels "
                    f"are {', '.join(map(repr, labels))}.{did_you_mean(texts[0], labels)}"
                )


def _noted(call: PlannedCall, plan: SelectPlan) -> PlannedCall:
    texts = () if call.sampling.labels or call.task.output else _texts_of(call, plan)
    if not texts:
        return call
    return replace(call, task=replace(call.task, sampling=Compared.by(call.sampling, texts)))


def _texts_of(call: PlannedCall, plan: SelectPlan) -> tuple[str, ...]:
    """Texts that the answers to a call are compared with, in the order given.

    Empty if some place reads the answer itself. A place counts as reading it unless it clearly
    compares it.
    """
    compared = list(_comparisons_of(call, plan))
    return tuple(dict.fromkeys(chain(*compared))) if all(compared) else ()


def _comparisons_of(
    call: PlannedCall, plan: SelectPlan, *, own: bool = False
) -> Iterator[list[str]]:
    """For each place that reads the answers to a call, the texts that it compares them with.

    own: without comparisons with the values of a set operation.
    """
    read: list[Node] = [plan.base, plan.final, *(one.predicate for one in plan.filters)]
    read += [] if plan.cut is None else [plan.cut.select]
    places = (place for part in plan.parts for each in part.places.values() for place in each)
    read += [condition.holds for place in places for condition in place]
    read += [part.value for other in plan.calls for part in other.fields]
    for tree in read:
        for place in tree.find_all(Column):
            if ours.call_of(place.name) == call.index and not (own and _is_of_branch(place)):
                yield _compared_with(place)


def _is_of_branch(place: Node) -> bool:
    comparison = place.ancestor(Comparison, Operator)
    return comparison is not None and OF_BRANCH in comparison.meta


def _compared_with(column: Column) -> list[str]:
    """The string literals that a column is compared with; empty if it is not compared."""
    comparison = column.parent
    if isinstance(comparison, Comparison):
        if comparison.kind not in (build.EQUAL, build.UNEQUAL):
            return []
        sides = [comparison.left, comparison.right]
    elif isinstance(comparison, Operator) and comparison.kind in (build.IN, build.NOT_IN):
        sides = comparison.operands
    else:
        return []
    others = [other for other in sides if other is not column]
    texts = [literal_of(one) for one in others]
    return texts if all(isinstance(text, str) for text in texts) else []
