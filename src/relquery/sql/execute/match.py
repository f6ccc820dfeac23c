"""Answers a join condition by calls that each decide about many pairs."""

from __future__ import annotations

from relquery.errors import RequestError
from relquery.prompt import Answer, Finish
from relquery.sql.execute.answered import answered
from relquery.sql.execute.ask import Replies
from relquery.sql.execute.asker import Asker, failed
from relquery.sql.execute.kept import Spent
from relquery.sql.execute.reading import problem
from relquery.sql.functions.task import Task
from relquery.sql.inputs.inputs import Question
from relquery.sql.inputs.matches import Match, Matches
from relquery.sql.types.shape import InvalidAnswerError

_YES, _NO = (Answer(text, Finish.STOP, attempts=0) for text in ("Yes", "No"))


def ask_matches(question: Question, asker: Asker) -> Replies:
    """Answer a call for every pair. Raises as `ask` does."""
    task = question.task
    matches = Matches.of(task, question.cells, asker.backend)

    def heard(done: int, answer: Answer) -> None:
        if asker.config.on_error == "raise" and (trouble := problem(answer, task.sampling)):
            raise RequestError(failed(question.name, {}, trouble))
        if asker.progress is not None:
            asker.progress(question.name, done, len(matches.calls))

    if asker.progress is not None:
        asker.progress(question.name, 0, len(matches.calls))
    given = answered(matches.prompts, task.sampling, asker, heard)
    read = [_numbers(answer, call, task) for answer, call in zip(given, matches.calls, strict=True)]
    replies = []
    for call, number in matches.place:
        numbers, trouble = read[call]
        if trouble is not None:
            replies.append(Answer(given[call].text, Finish.ERROR, trouble))
        else:
            replies.append(_YES if number in numbers else _NO)
    sent = sum(answer.attempts > 0 for answer in given)
    return Replies(replies, matches.of_row, Spent.of(given), sent, len(given) - sent)


def _numbers(answer: Answer, call: Match, task: Task) -> tuple[frozenset[int], str | None]:
    """(the numbers of the candidates that match, problem)."""
    trouble = problem(answer, task.sampling)
    if trouble is not None or answer.text is None or task.output is None:
        return frozenset(), trouble
    try:
        numbers = frozenset(map(int, task.output.read(answer.text)))
    except InvalidAnswerError as error:
        return frozenset(), str(error)
    if unknown := [number for number in numbers if not 1 <= number <= len(call.candidates)]:
        return frozenset(), f"{unknown[0]} is not the number of a candidate."
    return numbers, None
