"""Asks once more where an answer is no valid value, and shows the model why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from relquery.prompt import Answer, Prompt, Role, Span
from relquery.sql.execute.answered import answered
from relquery.sql.execute.ask import Asker
from relquery.sql.execute.reading import read_answer
from relquery.sql.functions.task import Task


def asked_again(
    prompts: Mapping[int, Prompt], answers: Mapping[int, Answer], task: Task, asker: Asker
) -> dict[int, Answer]:
    """New answers in place of those that are no valid values, with the costs of both.

    prompts, answers: by the same numbers. An answer that is still not valid is given as it is.
    """
    troubles = {at: read_answer(answer, task)[1] for at, answer in answers.items()}
    bad = [at for at, trouble in troubles.items() if trouble and answers[at].text is not None]
    again = [(*prompts[at], _reason(answers[at], troubles[at] or "")) for at in bad]
    return {
        at: _both(answers[at], new)
        for at, new in zip(bad, answered(again, task.sampling, asker), strict=True)
    }


def _reason(answer: Answer, trouble: str) -> Span:
    text = f"\n\nYour answer was:\n{answer.text}\n\nIt is not valid: {trouble}\nAnswer again."
    return Span(text, Role.USER)


def _both(first: Answer, second: Answer) -> Answer:
    """The second answer, with what both have cost."""
    return replace(
        second,
        attempts=first.attempts + second.attempts,
        prompt_tokens=first.prompt_tokens + second.prompt_tokens,
        cached_tokens=first.cached_tokens + second.cached_tokens,
        output_tokens=first.output_tokens + second.output_tokens,
    )
