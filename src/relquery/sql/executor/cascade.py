"""Answers a call by a cascade: a proxy decides the clear rows, the call's model the rest.

The proxy is another model, which is asked for the probabilities of the labels, or a head on
embeddings, which is trained on some of the model's answers. Answers of the proxy have no place in
the ledger of the model; what is drawn depends on the inputs alone, so a query that runs again draws
the same and finds what it asked before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import exp, isqrt
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relquery.arrays import Floats, Int64s
from relquery.backends.base import Backend
from relquery.cascade.cascade import drive, report_of
from relquery.cascade.thresholds import decide, decide_by_head, pilot_of, trained_of
from relquery.config import EMBEDDING, PAIR_LABELS, CascadeConfig, QueryConfig, Targets
from relquery.errors import ConfigError, QueryError, UnusableAnswersError
from relquery.prompt import Answer, Finish
from relquery.sql.binder.call import Task
from relquery.sql.executor.ask import Replies, ask
from relquery.sql.executor.context import ExecutionContext, usd_of
from relquery.sql.executor.guard import OrderAgreement
from relquery.sql.executor.reading import read_answer
from relquery.sql.inputs.inputs import Inputs, Question
from relquery.sql.planner.plan import PlannedCall

SEED = 0
"""Of what is drawn."""
_FILTER, _CLASSIFY = "ai_filter", "ai_classify"
_OF_LABELS = ("precision", "recall")
_DRAWN = 64
"""Pairs that are drawn where labels decide, about."""

Embed = Callable[[pa.Array], Floats]
"""Gives texts their vectors, (texts, dimensions)."""


def cascade_of(task: Task, config: QueryConfig, written: str) -> CascadeConfig | None:
    """The cascade of a call, by its own settings and those of the connection; None for none.

    A target of its own replaces all of the connection's. written: the call, for messages. Raises
    QueryError.
    """
    if task.function not in (_FILTER, _CLASSIFY) or task.kind != "row" or task.output is not None:
        return None
    own, default = dict(task.cascade), dict(config.cascade or {})
    if any(name in own for name in (*_OF_LABELS, "accuracy")):
        default = {name: default[name] for name in ("proxy", "confidence") if name in default}
    if not own and task.function == _CLASSIFY and not default.keys().isdisjoint(_OF_LABELS):
        return None
    given = default | own
    if not given and not task.is_by_labels:
        return None
    try:
        cascade = _by_labels(own) if task.is_by_labels else CascadeConfig.of(given)
    except ConfigError as error:
        raise QueryError(f"{written}: {error}") from error
    if cascade.proxy == EMBEDDING and cascade.targets.accuracy is not None:
        raise QueryError(
            f"{written}: a head on embeddings tells yes from no. Set precision and recall in place "
            "of accuracy, or a model as the proxy."
        )
    return cascade


def _by_labels(own: dict[str, Any]) -> CascadeConfig:
    """A cascade of pairs. Raises ConfigError."""
    if own.keys() & {"proxy", "accuracy"}:
        raise ConfigError(
            "pairs := 'labels' has no proxy, and precision and recall in place of accuracy."
        )
    return CascadeConfig(PAIR_LABELS, Targets(**{"precision": 0.9, "recall": 0.9} | own))


def has_cascade(calls: Iterable[PlannedCall], context: ExecutionContext) -> bool:
    """Whether one of some calls is answered by a cascade, which must see all rows at once."""
    return any(cascade_of(call.task, context.config, call.text) is not None for call in calls)


def proxies_of(
    calls: Iterable[tuple[str, Task]], config: QueryConfig
) -> Iterator[tuple[str, Task]]:
    """What calls ask of models that are proxies, as written. Raises QueryError."""
    for written, task in calls:
        cascade = cascade_of(task, config, written)
        if cascade is not None and cascade.asks_model:
            yield written, proxy_task(task, cascade)


def least_asked(cascade: CascadeConfig, calls: int) -> int:
    """How many of some calls a cascade asks about at least. Labels of n texts count as n / 2
    calls about two, and with n texts on both sides there are n * n of these."""
    if cascade.proxy == PAIR_LABELS:
        return min(calls, _DRAWN + isqrt(calls))
    trained = trained_of(calls) if cascade.proxy == EMBEDDING else 0
    return trained + pilot_of(calls - trained)


def joined(*notes: str | None) -> str | None:
    """Notes on a stage as one; None where there is none."""
    return "; ".join(filter(None, notes)) or None


def proxy_stage(name: str, kind: str = "proxy") -> str:
    """The name of the stage of a proxy, by that of its call."""
    return f"{name} {kind}"


def proxy_task(task: Task, cascade: CascadeConfig) -> Task:
    """What a model that is the proxy is asked: the same, for the probabilities of the labels."""
    sampling = replace(task.sampling, scored=True)
    return replace(task, kind="score", sampling=sampling, model=cascade.proxy, cascade=())


@dataclass(frozen=True, slots=True)
class Proxied:
    """The result of a cascade."""

    replies: Replies
    """The answers of all rows; what it took is that of the call's model."""
    note: str
    """What was promised, asked and shown."""
    proxy: Replies | None = None
    """What the proxy took; None for a head on embeddings."""
    backend: Backend | None = None
    """Of the proxy."""
    seconds: float = 0.0
    """Of the proxy, from its first call to its last answer."""
    kind: str = "proxy"
    """What the stage of the proxy is called after the call's."""


def ask_cascade(
    question: Question,
    context: ExecutionContext,
    cascade: CascadeConfig,
    embed: Embed,
    comparison: OrderAgreement | None = None,
) -> Proxied:
    """Answer a call for every row. The arguments are those of `ask`; see there."""
    run = CascadeRun.of(question, context, comparison)
    rng, targets = np.random.default_rng(SEED), cascade.targets
    proxy, backend, own, seconds = None, None, None, 0.0
    if cascade.proxy == EMBEDDING:
        steps = decide_by_head(embed(run.texts()), run.weights, targets, rng)
    else:
        of_proxy = context.of_call(proxy_task(question.task, cascade))
        start = context.clock()
        proxy, backend = _ask_proxy(run, of_proxy, cascade), of_proxy.backend
        seconds = context.clock() - start
        scores, own = _scores(proxy, run.calls, question.task.sampling.labels)
        if targets.accuracy is None:
            scores, own = scores[0], None
        else:
            scores = scores.max(axis=0)
        steps = decide(scores, run.weights, targets, rng)
    labels = question.task.sampling.labels

    def agree(call: int, answer: Answer) -> bool | None:
        value, trouble = read_answer(answer, question.task)
        if trouble is not None:
            return None
        return bool(value == (labels[0] if own is None else own[call]))

    decision, heard = drive(steps, run.ask, agree)
    kept = [labels[0] if yes else labels[1] for yes in decision.accepted] if own is None else own
    answers = [
        heard[call] if call in heard else Answer(kept[call], Finish.STOP, attempts=0)
        for call in range(run.calls)
    ]
    replies = run.replies(answers)
    said = report_of(decision, run.weights, targets).summary
    proxied = Proxied(replies, "; ".join(said), proxy, backend, seconds)
    saved = _saved(proxied, run.calls - len(heard), context.backend)
    return replace(proxied, note="; ".join([*said, *saved]))


@dataclass(slots=True)
class CascadeRun:
    """The distinct inputs of a question, which are asked a part at a time."""

    question: Question
    context: ExecutionContext
    comparison: OrderAgreement | None
    of_row: Int64s
    """(rows,), the input of each row, or -1; see Inputs."""
    first: Int64s
    """(inputs,), the first row of each."""
    weights: Int64s
    """(inputs,), the rows of each."""
    asked: list[Replies] = field(default_factory=list)

    @classmethod
    def of(
        cls, question: Question, context: ExecutionContext, comparison: OrderAgreement | None
    ) -> CascadeRun:
        """Nothing asked yet."""
        of_row = Inputs.of(question).of_row
        rows_of, first, rows = np.unique(of_row, return_index=True, return_counts=True)
        is_asked = rows_of >= 0
        return cls(question, context, comparison, of_row, first[is_asked], rows[is_asked])

    @property
    def calls(self) -> int:
        """How many inputs there are."""
        return len(self.first)

    def part(self, rows: Int64s) -> Question:
        """The question for some rows, in ascending order."""
        return replace(self.question, rows=len(rows), cells=self.question.cells.part(rows))

    def ask(self, calls: list[int]) -> Sequence[Answer]:
        """The answers of the call's model to some inputs."""
        rows = self.first[calls]
        order = np.argsort(rows)
        replies = ask(self.part(rows[order]), self.context, self.comparison)
        self.comparison = replies.comparison
        self.asked.append(replies)
        place = np.empty(len(order), np.int64)
        place[order] = replies.of_row
        return [replies.answers[index] for index in place.tolist()]

    def columns(self) -> list[pa.ChunkedArray]:
        """The fields of each input, as texts."""
        order = np.argsort(self.first)
        table = self.question.cells.part(self.first[order]).fetch()
        return list(table.take(pa.array(np.argsort(order))).columns)

    def texts(self) -> pa.Array:
        """The fields of each input as one text."""
        columns = self.columns()
        if not columns:
            return pa.array([""] * self.calls)
        joined = pc.binary_join_element_wise(*(column.fill_null("") for column in columns), "\n")
        return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined

    def replies(self, answers: Sequence[Answer]) -> Replies:
        """All answers, with what those of the call's model took."""
        return Replies(
            answers,
            self.of_row,
            [answer for replies in self.asked for answer in replies.paid],
            sum(replies.sent for replies in self.asked),
            sum(replies.known for replies in self.asked),
            sum(replies.solver_seconds for replies in self.asked),
            self.asked[0].phr if self.asked else 0.0,
            self.comparison,
        )


def _ask_proxy(run: CascadeRun, context: ExecutionContext, cascade: CascadeConfig) -> Replies:
    """Ask the proxy about each input. Where it fails, there is no score."""
    name = proxy_stage(run.question.name)
    config = replace(context.config, on_error="null", guard=None)
    context = replace(context, config=config).of_stage(name, None)
    task = replace(proxy_task(run.question.task, cascade), form=None, nulls="ask")
    order = np.argsort(run.first)
    question = replace(run.part(run.first[order]), name=name, task=task.in_form(config))
    try:
        replies = ask(question, context)
    except UnusableAnswersError:
        return Replies([], np.full(run.calls, -1), [], 0, 0)
    place = np.empty(run.calls, np.int64)
    place[order] = replies.of_row
    return replace(replies, of_row=place)


def _scores(proxy: Replies, calls: int, labels: tuple[str, ...]) -> tuple[Floats, list[str]]:
    """(probabilities of the labels (labels, calls), NaN without; the likeliest label of each)."""
    scores = np.full((len(labels), calls), np.nan)
    for call, place in enumerate(proxy.of_row.tolist()):
        logs = proxy.answers[place].scores if place >= 0 else None
        if logs is not None and proxy.answers[place].error is None:
            scores[:, call] = [exp(logs.get(label, -np.inf)) for label in labels]
    with np.errstate(invalid="ignore"):
        scores /= scores.sum(axis=0)
    best = np.where(np.isnan(scores), -1, scores).argmax(axis=0)
    return scores, [labels[place] for place in best.tolist()]


def _saved(found: Proxied, spared: int, backend: Backend) -> list[str]:
    """What the calls that were not made would have cost, by the mean of those that were made, less
    what the proxy has cost; nothing without a price."""
    cost = found.replies.usd(usd_of(backend))
    paid = sum(1 for answer in found.replies.paid if answer.attempts)
    if cost is None or not paid:
        return []
    of_proxy = 0.0
    if found.proxy is not None and found.backend is not None:
        of_proxy = found.proxy.usd(usd_of(found.backend)) or 0.0
    return [f"{spared * cost / paid - of_proxy:.4g} USD saved"]
