"""Answers a question about two texts by a label of each, where it follows from the labels.

AI_FILTER('Do the reviews express opposite sentiments?', a.review, b.review, pairs := 'labels')
=> 'Is the review positive or negative?' for each review, and Yes where two labels differ

So n texts take n calls and not n * n. The model proposes the labels, and says for which the answer
is Yes. Pairs drawn by lot are then asked as they are. Only if they show that precision and recall
are as good as was promised (see `cascade.claims`), the labels decide the other pairs. Otherwise all
pairs are asked one by one, and the report says why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relquery.arrays import Bools, Int64s
from relquery.cascade.cascade import drive
from relquery.cascade.claims import Verdict, check_claim
from relquery.config import CascadeConfig, Targets
from relquery.errors import UnusableAnswersError
from relquery.ir.lower import lower
from relquery.ir.nodes import Text
from relquery.prompt import Answer, Finish, Sampling
from relquery.sql.binder.call import Task, names_all
from relquery.sql.executor.ask import Replies, ask
from relquery.sql.executor.cascade import SEED, CascadeRun, Proxied, proxy_stage
from relquery.sql.executor.context import ExecutionContext
from relquery.sql.executor.dispatch import answer_prompts
from relquery.sql.executor.guard import OrderAgreement
from relquery.sql.executor.reading import read_answer
from relquery.sql.inputs.cells import Cells
from relquery.sql.inputs.inputs import Question
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import ListOf, Output, StructField, StructOf, described

LABELS = "labels"
"""What the stage that asks for labels is called after."""
_LEAST = 150
"""Pairs of which labels could spare too few to be tried."""
_MOST_LABELS, _MOST_TOKENS = 50, 1024
"""Of a proposal."""
_SHOWN = 6
"""Labels that a note has."""
_UNKNOWN = -1
_SAID = tuple(Answer(text, Finish.STOP, attempts=0) for text in ("No", "Yes"))
_TEXT = "text"
_SAME, _DIFFERENT, _LISTED, _NEVER = RULES = ("same", "different", "listed", "never")
PROPOSAL = Output(
    StructOf(
        (
            StructField("yes", Leaf("VARCHAR", RULES), required=True),
            StructField("question", Leaf("VARCHAR"), required=True),
            StructField("labels", ListOf(Leaf("VARCHAR")), required=True),
            StructField("pairs", ListOf(ListOf(Leaf("VARCHAR"), size=2)), required=True),
        )
    )
)
"""The type of a proposal."""
_ASK = f"""This is asked about two texts. Does the answer follow from one label of each text?
If so: which question about one text gives its label, which labels are there, and is the answer Yes
where two labels are the same, where they are different, or for listed pairs of labels alone? If it
does not follow, yes is never. Answer in JSON: {described(PROPOSAL.whole)}."""


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A rule by which the answer about two texts would follow from their labels."""

    question: str
    """About one text."""
    labels: tuple[str, ...]
    yes: Bools
    """(labels, labels), whether the answer is Yes: by the labels of the first and second text."""
    rule: str
    """Where it is Yes, in words."""

    @classmethod
    def read(cls, text: str | None) -> Proposal | str:
        """From a model's answer, or why there is none."""
        try:
            given = PROPOSAL.read(text or "")
        except ValueError as error:
            return f"the proposal cannot be read: {error}"
        if given["yes"] == _NEVER:
            return "the model proposes no labels"
        labels = tuple(dict.fromkeys(filter(None, given["labels"])))
        if not 1 < len(labels) <= _MOST_LABELS or not given["question"]:
            return f"the model proposes {len(labels)} labels"
        same = np.eye(len(labels), dtype=bool)
        yes = {_SAME: same, _DIFFERENT: ~same, _LISTED: np.zeros_like(same)}[given["yes"]]
        pairs = given["pairs"] if given["yes"] == _LISTED else ()
        for first, second in pairs:
            if not {first, second} <= set(labels):
                return f"the model proposes {first!r} and {second!r}, which are no labels"
            yes[labels.index(first), labels.index(second)] = True
        shown = ", ".join(labels[:_SHOWN]) + (", ..." if len(labels) > _SHOWN else "")
        rule = f"{given['question']} {shown}; Yes for {given['yes']} ones"
        return cls(given["question"], labels, yes, rule)


def ask_by_labels(
    question: Question,
    context: ExecutionContext,
    cascade: CascadeConfig,
    comparison: OrderAgreement | None = None,
) -> Proxied:
    """Answer a call about two fields for every row. The arguments are those of `ask`; see there."""
    run = CascadeRun.of(question, context, comparison)
    config = replace(context.config, on_error="null", guard=None)
    own = replace(context, config=config).of_stage(proxy_stage(question.name, LABELS), None)
    start = context.clock()
    claim = _claim_of(run, own)
    seconds = context.clock() - start
    heard, note = dict[int, Answer](), f"pairs one by one: {claim.reason}"
    if not claim.reason:
        verdict, heard = _check(run, claim.said, cascade.targets)
        note = _outcome(run, claim, verdict, cascade.targets)
        claim = claim if verdict.holds else replace(claim, said=np.full(run.calls, _UNKNOWN))
    rest = [
        index for index in np.flatnonzero(claim.said == _UNKNOWN).tolist() if index not in heard
    ]
    if rest:
        heard |= zip(rest, run.ask(rest), strict=True)
    answers = [heard.get(index) or _SAID[yes] for index, yes in enumerate(claim.said.tolist())]
    proxy = claim.replies
    backend = context.backend if proxy else None
    return Proxied(run.replies(answers), note, proxy, backend, seconds, LABELS)


@dataclass(frozen=True, slots=True, eq=False)
class _Claim:
    """A claim of labels about pairs.

    said: (calls,), 1 for Yes, 0 for No, or _UNKNOWN. reason: why they say nothing; else "". rule:
    what they are, and where the answer is Yes. replies: to what was asked for them.
    """

    said: Int64s
    reason: str = ""
    rule: str = ""
    replies: Replies | None = None


def _claim_of(run: CascadeRun, context: ExecutionContext) -> _Claim:
    """Ask for a proposal and for the label of each text."""
    said = np.full(run.calls, _UNKNOWN)
    if run.calls < _LEAST:
        return _Claim(said, f"{run.calls:,} are too few for labels to save anything")
    asked = run.question.task
    text = f"{asked.prompt}\n\n{_ASK}"
    sampling = Sampling(max_tokens=_MOST_TOKENS, schema=PROPOSAL.schema)
    try:
        (given,) = answer_prompts([lower(Text(text))], sampling, context)
        replies = Replies([given], said[:0], [given], given.attempts > 0, given.attempts == 0)
        proposal = Proposal.read(given.text)
        if isinstance(proposal, str):
            return _Claim(said, proposal, "", replies)
        labels, of_texts = _labels(run, proposal, context)
    except UnusableAnswersError:
        return _Claim(said, "the model gives no labels")
    replies = replace(
        of_texts,
        paid=[given, *of_texts.paid],
        sent=replies.sent + of_texts.sent,
        known=replies.known + of_texts.known,
    )
    yes = proposal.yes | proposal.yes.T if asked.is_symmetric else proposal.yes
    said = np.where((labels >= 0).all(axis=1), yes[labels[:, 0], labels[:, 1]], _UNKNOWN)
    return _Claim(said, "", proposal.rule, replies)


def _labels(
    run: CascadeRun, proposal: Proposal, context: ExecutionContext
) -> tuple[Int64s, Replies]:
    """((calls, 2) the label of each text of each pair, or -1; the answers for all texts)."""
    columns = [column.combine_chunks() for column in run.columns()]
    texts = pa.table({_TEXT: pa.chunked_array(columns).unique().drop_null()})
    query = proposal.question
    if not names_all([query], proposal.labels):
        query += f"\n{', '.join(proposal.labels)}?"
    asked, every = run.question.task, np.arange(len(texts))
    task = Task((query,), Sampling(labels=proposal.labels), model=asked.model, form=asked.form)
    cells = Cells((_TEXT,), ("string",), every, lambda rows: texts.take(pa.array(rows)))
    name = proxy_stage(run.question.name, LABELS)
    replies = ask(Question(name, task.in_form(context.config), len(texts), cells), context)
    values = [read_answer(answer, task)[0] for answer in replies.answers]
    numbers = [proposal.labels.index(value) if value in proposal.labels else -1 for value in values]
    of_text = np.array([*numbers, -1])[replies.of_row]
    of_text = np.append(of_text, -1)
    places = [pc.index_in(column, texts.column(0)).fill_null(-1) for column in columns]
    return np.stack([of_text[place.to_numpy()] for place in places], axis=1), replies


def _check(run: CascadeRun, said: Int64s, targets: Targets) -> tuple[Verdict, dict[int, Answer]]:
    """Ask pairs drawn by lot, and compare what the labels say of them."""
    weights = np.where(said == _UNKNOWN, 0, run.weights)
    steps = check_claim(
        said == 1,
        weights,
        targets.precision or 1.0,
        targets.recall or 1.0,
        1 - targets.confidence,
        np.random.default_rng(SEED),
    )

    def agree(call: int, answer: Answer) -> bool | None:
        value, trouble = read_answer(answer, run.question.task)
        return None if trouble is not None else value == "Yes"

    return drive(steps, run.ask, agree)


def _outcome(run: CascadeRun, claim: _Claim, verdict: Verdict, targets: Targets) -> str:
    """What was found, in words."""
    drawn = f"{verdict.wrong:,} of {verdict.drawn:,} drawn pairs are answered otherwise"
    if not verdict.holds:
        why = drawn if verdict.drawn else "too many pairs would have to be drawn to show it"
        return f"pairs one by one: the answer does not follow from labels ({claim.rule}): {why}"
    return (
        f"pairs by labels ({claim.rule}): precision {targets.precision:g}, recall "
        f"{targets.recall:g} with confidence {targets.confidence:g}; {drawn}"
    )
