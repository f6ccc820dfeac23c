"""The way of a prompt to an answer: from the ledger, or else from the backend and into the ledger.

The ledger has answers under three kinds of keys, all made from the prompt as written:

    no mark     what a row got, in whatever order of fields
    REORDERED   for inputs that a guard has compared, in an order of the solver
    AS_WRITTEN  for these too, and for all inputs of a call whose fields are pinned

So a guard never takes the answer to one order for that to another, and a query that runs again
asks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from relquery.arrays import Int64s
from relquery.backends.base import cancelling, tell
from relquery.ledger import (
    AnswerStore,
    Keys,
    StoredCall,
    has_one_answer,
    is_known,
    look_up,
    save_copies,
    turns,
)
from relquery.prompt import Answer, Finish, Prompt, Role, Sampling, Span
from relquery.reordering.schedule import Schedule
from relquery.sql.binder.call import Task
from relquery.sql.caching import CachePlan, planned
from relquery.sql.executor.context import ExecutionContext, usd_of
from relquery.sql.executor.reading import read_answer
from relquery.sql.inputs.inputs import Inputs, Question

Marked = Literal["fields reordered", "fields as written"]
REORDERED: Marked = "fields reordered"
AS_WRITTEN: Marked = "fields as written"
NO_ANSWER = Answer(None, Finish.ERROR, "The backend gave no answer.")
"""Orders in which fields stay as written, or are the same in all rows."""


@dataclass(frozen=True, slots=True, eq=False)
class CacheLookup:
    """The ledger's answers for some inputs. inputs: their numbers, ascending. known: the answers.

    ledger, keys: where other answers go; None if they are not kept. is_settled: see
    AnswerStream.listen.
    """

    inputs: Int64s
    ledger: AnswerStore | None
    keys: Keys | None
    known: dict[int, Answer]
    is_settled: bool = False

    @classmethod
    def of(
        cls,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        context: ExecutionContext,
        *,
        is_settled: bool = False,
    ) -> CacheLookup:
        """The answers to prompts, which are numbered from 0."""
        ledger = context.ledger if has_one_answer(sampling) else None
        keys, known = None, dict[int, Answer]()
        if ledger is not None:
            keys, known = look_up(ledger, context.names, prompts, sampling)
        return cls(np.arange(len(prompts)), ledger, keys, known, is_settled or bool(known))

    def marked(self, mark: Marked, inputs: Int64s | None = None) -> CacheLookup:
        """The answers in one order of fields. inputs: in ascending order; None for the same."""
        rows = self.inputs if inputs is None else inputs
        if self.ledger is None or self.keys is None:
            return CacheLookup(rows, None, None, {})
        keys = (self.keys if inputs is None else self.keys.part(inputs.tolist())).marked(mark)
        answers = self.ledger.find(keys)
        known = {int(rows[place]): answer for place, answer in answers.items()}
        return CacheLookup(rows, self.ledger, keys, known, self.is_settled)

    def lacks(self, inputs: Int64s) -> Int64s:
        """The places, among some inputs, of those without an answer."""
        return np.flatnonzero(~np.isin(inputs, list(self.known)))

    def copy(self, answers: Mapping[int, Answer]) -> None:
        """Keep answers to some of all inputs that are kept under other keys already."""
        if self.ledger is not None and self.keys is not None and answers:
            save_copies(self.ledger, (self.keys.entry(*each) for each in answers.items()))

    def deliver(
        self,
        prompts: Sequence[Prompt],
        places: Int64s,
        sampling: Sampling,
        context: ExecutionContext,
    ) -> Generator[tuple[int, Answer], None, None]:
        """Ask the backend. Yields (input, answer) as answers arrive; the ledger gets them too.

        What another process asks at the same time is not asked here, but waited for. Its answers
        took no attempt. places: (prompts,), of each among the inputs. Closing this
        stops the backend's work on the rest.
        """
        if not len(prompts):
            return
        backend, is_settled = context.backend, self.is_settled
        usd = usd_of(backend)
        call = StoredCall(backend.name, sampling, usd)
        with turns(prompts, places, self.ledger, self.keys, call) as some:
            for turn in some:
                is_settled |= bool(turn.known)
                for place, answer in turn.known.items():
                    yield int(self.inputs[place]), answer
                if not len(turn.prompts):
                    continue
                record = None if context.record is None else context.record.batch(turn.prompts)
                answers = backend.answer(turn.prompts, sampling)
                with cancelling(answers):
                    for index, answer in tell(answers, turn.on_answer, is_settled=is_settled):
                        if record is not None:
                            record(index, answer)
                        if context.on_answer is not None:
                            context.on_answer(answer, usd(answer))
                        yield int(self.inputs[turn.places[index]]), answer


def answer_prompts(
    prompts: Sequence[Prompt],
    sampling: Sampling,
    context: ExecutionContext,
    on_answer: Callable[[int, Answer], None] = lambda done, answer: None,
    *,
    is_settled: bool = False,
) -> list[Answer]:
    """The answers to prompts, in their order.

    on_answer: told of each new one, and how many there are. is_settled: see AnswerStream.listen.
    Passes on whatever the backend raises; answers received before that are in the ledger.
    """
    lookup = CacheLookup.of(prompts, sampling, context, is_settled=is_settled)
    known, missing = lookup.known, lookup.lacks(lookup.inputs)
    some = [prompts[index] for index in missing]
    with closing(lookup.deliver(some, missing, sampling, context)) as stream:
        for index, answer in stream:
            known[index] = answer
            on_answer(len(known), answer)
    return [known.get(index, NO_ANSWER) for index in range(len(prompts))]


def ask_again(
    prompts: Sequence[Prompt], answers: Sequence[Answer], task: Task, context: ExecutionContext
) -> dict[int, Answer]:
    """New answers in place of those that are not valid, by their place, with both costs.

    An answer that is still not valid is given as it is.
    """
    troubles = {
        index: trouble
        for index, answer in enumerate(answers)
        if (trouble := read_answer(answer, task)[1]) and answer.text is not None
    }
    again = [
        (*prompts[index], Span(_AGAIN.format(answers[index].text, trouble), Role.USER))
        for index, trouble in troubles.items()
    ]
    is_settled = any(map(is_known, answers))
    new_ones = answer_prompts(again, task.sampling, context, is_settled=is_settled)
    by_index = dict(zip(troubles, new_ones, strict=True))
    return {
        index: replace(
            new.with_cost_of(answers[index]), attempts=answers[index].attempts + new.attempts
        )
        for index, new in by_index.items()
    }


_AGAIN = "\n\nYour answer was:\n{}\n\nIt is not valid: {}\nAnswer again."


@dataclass(slots=True)
class CallDispatch:
    """The distinct inputs of a call on their way to a backend.

    lookup: what the ledger has for prompts as written. total: how many answers are needed. known:
    how many the ledger had. sent: how many were asked.
    """

    question: Question
    context: ExecutionContext
    inputs: Inputs
    lookup: CacheLookup
    total: int
    known: int = 0
    sent: int = 0

    @classmethod
    def of(cls, question: Question, context: ExecutionContext) -> CallDispatch:
        """Nothing sent yet."""
        inputs = Inputs.of(question)
        prompts = inputs.prompts_as_written()
        lookup = CacheLookup.of(prompts, question.task.sampling, context)
        return cls(question, context, inputs, lookup, inputs.count)

    def note_known(self, count: int) -> None:
        """Count answers of the ledger."""
        self.known += count
        self._tell(self.sent)

    def send(
        self,
        rows: Int64s,
        schedule: Schedule | None,
        lookup: CacheLookup,
        on_answer: Callable[[int, Answer], None],
        plan: CachePlan | None = None,
    ) -> None:
        """Ask inputs `rows`, with the fields of a schedule for them, or as written if None.

        lookup: under whose keys answers are kept. on_answer: told of each input and its answer;
        what it raises ends the requests. plan: what the provider caches of their prompts, if it is
        known.
        """
        done, context, sampling = self.sent, self.context, self.question.task.sampling
        prompts: Sequence[Prompt] = self.inputs.prompts(rows, schedule)
        places = np.searchsorted(lookup.inputs, rows)
        if plan is None:
            plan = planned(prompts, context.backend)
        if plan is not None and plan.changes:
            prompts, places = plan.prompts(prompts), places[plan.order]
        self.sent += len(rows)
        # Closes immediately if something raises here, so the backend stops working on the rest.
        with closing(lookup.deliver(prompts, places, sampling, context)) as stream:
            for row, answer in stream:
                if is_known(answer):
                    self.sent, self.known = self.sent - 1, self.known + 1
                else:
                    done += 1
                on_answer(row, answer)
                self._tell(done)

    def _tell(self, sent: int) -> None:
        self.context.tell(self.question.name, self.known + sent, self.total)
