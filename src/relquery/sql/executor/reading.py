"""The reading of an answer: its value, or why it has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp, inf, isfinite
from typing import Any

from relquery.config import QueryConfig
from relquery.errors import SHORTEN, RequestError
from relquery.prompt import Answer, Finish, Sampling
from relquery.sql.binder.call import Task
from relquery.sql.inputs.inputs import Question
from relquery.sql.types.shape import InvalidAnswerError
from relquery.unicode import valid

Fields = Mapping[str, str | None]

_SHOWN_FIELDS = 3


def read_answer(answer: Answer, task: Task) -> tuple[Any, str | None]:
    """(value, problem) of an answer: one of them is None."""
    trouble = problem(answer, task.sampling)
    if trouble is not None or answer.text is None:
        return None, trouble
    if task.kind == "score":
        return _score(answer, task.sampling.labels)
    if task.sampling.labels:
        return _label(answer.text, task.sampling.labels)
    if task.output is None or task.is_text:
        return valid(answer.text), None
    try:
        return task.output.read(answer.text), None
    except InvalidAnswerError as error:
        return None, str(error)


def problem(answer: Answer, sampling: Sampling) -> str | None:
    """Why an answer is not complete; None if it is."""
    if answer.error is not None:
        return _with_hint(answer.error)
    if answer.finish is Finish.LENGTH:
        return (
            f"The answer was cut off after {answer.output_tokens} tokens: {_short(answer.text)}. "
            f"Raise max_tokens (now {sampling.max_tokens}) or ask for a shorter answer."
        )
    if answer.finish not in (Finish.STOP, Finish.DECIDED) or answer.text is None:
        return f"The request ended without an answer ({answer.finish.value})."
    return None


def check_complete(
    answer: Answer, question: Question, config: QueryConfig, fields: Callable[[], Fields] = dict
) -> None:
    """Raises RequestError for an answer that is not complete, if the config says so.

    fields: gives those of the input, for the message.
    """
    trouble = problem(answer, question.task.sampling) if config.on_error == "raise" else None
    if trouble is not None:
        raise RequestError(failure_message(question.name, fields(), trouble))


def failure_message(stage: str, fields: Fields, trouble: str) -> str:
    """What stopped a query: the stage, the fields of one of its rows, and the problem."""
    cells = [f"{name} = {_short(cell)}" for name, cell in fields.items()]
    more = f" and {len(cells) - _SHOWN_FIELDS} more" if len(cells) > _SHOWN_FIELDS else ""
    row = f" for {', '.join(cells[:_SHOWN_FIELDS])}{more}" if cells else ""
    return f"{stage}{row}: {trouble}"


def _with_hint(error: str) -> str:
    """How a prompt that is made of columns gets shorter."""
    hint = f"{SHORTEN[:-1]}, e.g. with substring(column, 1, 2000)."
    return error.removesuffix(SHORTEN) + hint if error.endswith(SHORTEN) else error


def _short(text: str | None) -> str:
    """The text in quotes, shortened if it is long; `NULL` if there is none."""
    if text is None:
        return "NULL"
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _label(text: str, labels: tuple[str, ...]) -> tuple[str | None, str | None]:
    """The answer as one of the labels; a server that is asked in words may give another."""
    for given in (text, text.strip()):
        if given in labels:
            return given, None
    return None, f"The answer {_short(text)} is none of the labels {', '.join(map(repr, labels))}."


def _score(answer: Answer, labels: tuple[str, ...]) -> tuple[str | None, str | None]:
    """The probability of the first label, as text; the mean if all labels are numbers."""
    if answer.scores is None:
        return None, "The model gave no probabilities of the labels. Take AI_CLASSIFY, or LLM."
    weights = [exp(answer.scores.get(label, -inf)) for label in labels]
    if not isfinite(sum(weights)):
        return None, "The model gave probabilities that are not numbers."
    try:
        values = [float(label) for label in labels]
    except ValueError:
        return repr(weights[0]), None
    return repr(sum(map(float.__mul__, values, weights))), None
