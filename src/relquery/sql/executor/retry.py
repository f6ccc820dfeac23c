"""Asks once more where an answer is not a valid value, and shows the model why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relquery.prompt import Answer, Prompt, Role, Span
from relquery.sql.binder.task import Task
from relquery.sql.executor.answered import answered
from relquery.sql.executor.asker import Asker
from relquery.sql.executor.reading import read_answer


def asked_again(
    prompts: Sequence[Prompt], answers: Sequence[Answer], task: Task, asker: Asker
) -> dict[int, Answer]:
    """New answers in place of those that are not valid, by their place, with both costs.

    An answer that is still not valid is given as it is.
    """
    troubles = {
        at: trouble
        for at, answer in enumerate(answers)
        if (trouble := read_answer(answer, task)[1]) and answer.text is not None
    }
    again = [(*prompts[at], _reason(answers[at], trouble)) for at, trouble in troubles.items()]
    return {
        at: _both(answers[at], new)
        for at, new in zip(troubles, answered(again, task.sampling, asker), strict=True)
    }


def _reason(answer: Answer, trouble: str) -> Span:
    text = f"\n\nYour answer was:\n{answer.text}\n\nIt is not valid: {trouble}\nAnswer again."
    return Span(text, Role.USER)


def _both(first: Answer, second: Answer) -> Answer:
    """The second answer, with what both have cost."""
    attempts = first.attempts + second.attempts
    return replace(second.with_cost_of(first), attempts=attempts)
