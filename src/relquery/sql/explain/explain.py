"""EXPLAIN of a query with LLM calls: what each call would ask and for how many rows.

It goes through the SELECTs as if they were run (see executor.execute), with NULL for all
answers. Rows that have not passed a filter are counted exactly. Rows that a filter may drop are
still counted, so the counts for later stages are upper bounds. If it is known which share of the
rows passes, a random part of them goes on, and the counts are what is expected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from relquery.arrays import Int64s
from relquery.backends.base import Backend
from relquery.config import PAIR_LABELS, CascadeConfig
from relquery.errors import QueryError
from relquery.prices.table import known_price, no_price
from relquery.prompt import Compared, Sampling
from relquery.sql.executor.cascade import (
    cascade_of,
    has_cascade,
    least_asked,
    proxy_stage,
    proxy_task,
)
from relquery.sql.executor.context import ExecutionContext
from relquery.sql.executor.order import weights_of
from relquery.sql.executor.stages import StageWalker
from relquery.sql.explain.cost import Range
from relquery.sql.explain.estimate import Estimator
from relquery.sql.explain.explanation import Counted, ExplainedCall, listed
from relquery.sql.explain.requests import RequestPlanner, Requests
from relquery.sql.explain.rows import EstimatedRows, KnownRows, Selectivities, known_rows
from relquery.sql.host.database import Database, Scratch
from relquery.sql.parser.tree import Expression
from relquery.sql.planner.plan import Field, PlannedCall
from relquery.sql.planner.statement import StatementPlan

_SHOWN = 60  # characters of a prompt
_PROVIDERS = ("openai", "anthropic", "gemini", "azure", "vertex", "bedrock", "groq", "together",
    "openrouter", "deepseek", "xai")  # fmt: skip
_OPPOSITES = {"'yes'": "'no'", "'no'": "'yes'", "'true'": "'false'", "'false'": "'true'"}


@dataclass(frozen=True, slots=True)
class _OfModel:
    """The predictor of one model's calls, one stage after the other."""

    context: ExecutionContext
    planner: RequestPlanner
    estimator: Estimator


@dataclass(slots=True)
class Explainer:
    """A visitor that describes stages instead of running them; see executor.stages.

    shares: of the rows that pass; None if nothing is known. calls: those described so far, by
    stage. costs: whether to tell what the calls cost in any case; else only where a price is known.
    """

    database: Database
    scratch: Scratch
    context: ExecutionContext
    shares: Selectivities | None = None
    costs: bool = False
    calls: dict[str, ExplainedCall] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    _stand_ins: dict[str, KnownRows] = field(default_factory=dict)
    _models: dict[str, _OfModel] = field(default_factory=dict)

    def _of_model(self, call: PlannedCall) -> _OfModel:
        """What predicts the calls of the model that a call asks."""
        name = call.task.model or ""
        if name not in self._models:
            context = self.context.of_call(call.task)
            estimator = Estimator(context.backend, self.costs)
            needs_order, expects = estimator.needs_order, self.shares is not None
            planner = RequestPlanner(context, needs_order=needs_order, expects=expects)
            self._models[name] = _OfModel(context, planner, estimator)
        return self._models[name]

    def run(self, plan: StatementPlan) -> None:
        """Go through the stages of a plan."""
        for number, select in enumerate(plan.selects):
            rows = EstimatedRows.estimated(select, self.database, self.scratch, self._stand_ins)
            rows.shares, rows.select = self.shares, number
            rows.weights = weights_of(select.calls, self.context)
            rows.whole = has_cascade(select.calls, self.context)
            StageWalker(rows, self.ask, self.kinds).run()
            if select.table:
                self._stand_ins[select.table] = self._fill(select.table, rows, plan)

    def _fill(self, table: str, rows: EstimatedRows, plan: StatementPlan) -> KnownRows:
        """Put a stand-in for the rows of a SELECT in its table; see explain.bounds."""
        known = rows.known
        if known.expected:
            known = replace(known, most=len(rows.alive))
        known = known_rows(rows.plan.final, known, plan.bound.functions)
        sql = rows.final()
        try:
            self.scratch.fill(table, sql if known.held else f"SELECT * FROM ({sql}) WHERE false")
        except QueryError:  # due to rows that a filter would drop, or to NULL for an answer
            self.scratch.fill(table, f"SELECT * FROM {table}")
            known = replace(known, exact=False, held=False)
        return known

    def ask(
        self,
        name: str,
        call: PlannedCall,
        rows: EstimatedRows,
        wanted: Int64s,
        where: Expression | None,
    ) -> None:
        """Record what a call would ask."""
        rows.stages.setdefault(call.index, name)
        rows.of_call(call.index).asked[wanted] = True
        cascade, written = cascade_of(call.task, self.context.config, call.text), call
        _, call = self.context.sent(call)
        model = self._of_model(call)
        is_open = any(rows.is_open(part.value) for part in call.fields)
        is_sure = rows.known.exact and not rows.may_stop and not is_open
        is_sure &= where is None or not rows.is_open(where)
        told = self._described(name, call, rows, wanted)
        requests = self._requests(call, rows, wanted, is_open=is_open)
        if isinstance(requests, Requests):
            is_sure &= requests.exact
            model.planner.add(requests, is_sure=is_sure)
            is_expected = self.shares is not None and rows.known.is_at_hand
            is_expected &= where is None or not rows.is_open(where)
            counts: Counted = "exact" if is_sure else "expected" if is_expected else "at most"
            told = replace(
                told,
                calls=requests.most,
                from_ledger=requests.known,
                counts=counts,
                compared=requests.compared,
                skipped=requests.skipped,
            )
            length = None if self.shares is None else self.shares.lengths.get(name)
            told = model.estimator.told(told, replace(requests, length=length))
        elif requests is not None or told.rows is not None:
            told = replace(told, calls=requests, counts="at most")
        if cascade is not None:
            told = _of_cascade(told, cascade)
        self.calls[name] = self.calls[name] + told if name in self.calls else told
        if cascade is not None and cascade.asks_model:
            proxy = replace(written, task=proxy_task(written.task, cascade))
            self.ask(proxy_stage(name), proxy, rows, wanted, where)

    def _described(
        self, name: str, call: PlannedCall, rows: EstimatedRows, wanted: Int64s
    ) -> ExplainedCall:
        """A call, with nothing known of what it will ask."""
        context, sampling = self._of_model(call).context, call.sampling
        backend = context.backend
        prompt = " ".join(call.prompt.split())
        modules = tuple(call.fields[place].name for place in call.modules)
        has_modules = bool(context.modules(call))
        again = ", and once more if invalid" if call.task.retry else ""
        return ExplainedCall(
            stage=name,
            prompt=prompt if len(prompt) <= _SHOWN else f"{prompt[: _SHOWN - 3]}...",
            fields=listed([*map(_shown, call.fields)], ", "),
            rows=rows.at_most(len(wanted)) if rows.known.held else rows.known.most,
            order="pinned" if call.is_pinned else self.context.config.order,
            answers=f"{_answers(sampling, backend)}{again}",
            hint=_hint(sampling, backend),
            modules=modules if has_modules else (),
            plain=() if has_modules else modules,
            model=backend.name,
            is_pair=_is_pair(call),
        )

    def _requests(
        self,
        call: PlannedCall,
        rows: EstimatedRows,
        wanted: Int64s,
        *,
        is_open: bool,
    ) -> Requests | int | None:
        """What a call asks; or how many inputs there are at most, if they depend on answers."""
        config, most = self.context.config, rows.known.most
        if rows.known.held or not call.fields:
            try:
                if not is_open:
                    return self._of_model(call).planner.of(call, rows, wanted)
                most = rows.at_most(rows.number_inputs(call, wanted))
            except QueryError:  # caused by a row that a filter would have dropped
                most = rows.at_most(len(wanted))
        if most is not None and config.guard is not None and len(call.fields) > 1:
            most += min(most, config.guard_rows)
        return most


def _of_cascade(told: ExplainedCall, cascade: CascadeConfig) -> ExplainedCall:
    """A call of which a proxy decides some rows: how many is not known before the run."""
    cost, most = told.cost, told.calls
    if cost is not None and most and told.counts != "at most":
        least = least_asked(cascade, most) / most
        cost = cost * Range(least, (1 + least) / 2, 1.0)
    by_labels = cascade.proxy == PAIR_LABELS
    return replace(told, counts="at most", cost=cost, is_by_labels=by_labels)


def _is_pair(call: PlannedCall) -> bool:
    """Whether a call is about a column of two rows, one pair a call."""
    task, tables = call.task, {field.source for field in call.fields if field.source}
    if task.function not in ("ai_filter", "ai_score") or task.pairs or task.sides:
        return False
    names = {field.column for field in call.fields}
    return len(call.fields) == len(tables) == 2 and len(names) == 1


def _shown(field: Field) -> str:
    name = f"BAG({field.name})" if field.is_bag else field.name
    return f"MODULE({name})" if field.is_module else name


def _answers(sampling: Sampling, backend: Backend) -> str:
    """How an answer is produced, and how long it can get."""
    labels, in_one_pass = len(set(sampling.labels)), backend.insight.one_pass(sampling)
    of_labels = f"{labels:,} label{'' if labels == 1 else 's'}"
    tokens = f"{sampling.max_tokens:,} token{'' if sampling.max_tokens == 1 else 's'}"
    how = "decoded"
    if in_one_pass is None:
        how = "by the provider"
    elif isinstance(sampling, Compared) and sampling.max_tokens > 1:
        how = "usually one forward pass" if in_one_pass else "decoded until it decides"
    elif in_one_pass:
        return f"one forward pass, {of_labels if labels else '1 token'}"
    return f"{how}, {f'one of {of_labels}' if labels else f'at most {tokens}'}"


def _hint(sampling: Sampling, backend: Backend) -> str | None:
    """Labels that make a decoded call take just one forward pass, if its answers are only compared
    with texts: WHERE LLM('Positive?', review) = 'Yes'  =>  ('Yes', 'No').
    """
    if not isinstance(sampling, Compared) or backend.insight.one_pass(sampling) is not False:
        return None
    if not backend.insight.one_pass(replace(sampling, labels=sampling.texts)):
        return None
    shown = ["'" + text.replace("'", "''") + "'" for text in sampling.texts]
    if len(shown) == 1:
        label = shown[0]
        other = _OPPOSITES.get(label.lower(), "...")
        capital = other[0] + other[1:].capitalize() if label[1].isupper() else other
        shown.append(other.upper() if label.isupper() else capital)
    return f"add labels := [{', '.join(shown)}]"


def unpriced(contexts: Iterable[ExecutionContext]) -> str | None:
    """That no price is known, if a provider's model has none. contexts: of the calls."""
    names = dict.fromkeys(context.backend.name for context in contexts)
    parts = [name.partition(":") for name in names if known_price(name) is None]
    return " ".join(no_price(model) for of, _, model in parts if of in _PROVIDERS) or None
