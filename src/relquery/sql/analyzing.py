"""EXPLAIN ANALYZE of one statement: each stage is predicted when its rows are known, just before it
runs. So what is compared is how EXPLAIN counts, not what somebody guesses of the answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from relquery.arrays import Int64s
from relquery.prompt import Sampling
from relquery.report import StageReport
from relquery.sql.analyze.analysis import compared
from relquery.sql.executor.execute import Execution
from relquery.sql.executor.rows import Rows
from relquery.sql.explain.explain import Explainer
from relquery.sql.explain.explanation import ExplainedCall
from relquery.sql.explain.rows import EstimatedRows
from relquery.sql.parser.tree import Expression, Node
from relquery.sql.planner.plan import PlannedCall
from relquery.sql.planner.statement import Plan


class KnownRows(EstimatedRows):
    """Rows of a SELECT that runs: each answer is there when a stage reads it."""

    __slots__ = ()
    matching = Rows.matching
    leave = Rows.leave
    learns = Rows.learns
    passing = Rows.passing
    cut = Rows.cut
    _answers = Rows._answers
    may_stop = False

    def is_open(self, node: Node) -> bool:
        """Not at all."""
        return False

    def waits(self, call: PlannedCall) -> bool:
        """Not any more."""
        return False


@dataclass(slots=True)
class Analysis(Execution):
    """Runs the plan of a statement, and predicts each of its stages."""

    explainer: Explainer = field(init=False)
    _samplings: dict[str, Sampling] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start = KnownRows.of
        self.explainer = Explainer(self.database, self.scratch, self.asker)

    def ask(
        self, name: str, call: PlannedCall, rows: Rows, wanted: Int64s, where: Expression | None
    ) -> None:
        """Predict one call for some rows, and ask it."""
        assert isinstance(rows, KnownRows)
        self._samplings[name] = call.sampling
        self.explainer.ask(name, call, rows, wanted, where)
        Execution.ask(self, name, call, rows, wanted, where)

    def run(self, plan: Plan) -> pa.Table:
        """What was predicted of the stages beside what was measured."""
        before = set(self.paid.stages)
        sql, _ = self.answered(plan)
        self.database.execute(sql)
        stages = [one for name, one in self.paid.stages.items() if name not in before]
        calls = self.explainer.calls
        timed = {one.name: self._timed(calls[one.name], one) for one in stages}
        return compared(timed, stages)

    def _timed(self, call: ExplainedCall, stage: StageReport) -> ExplainedCall:
        """With the seconds for answers as long as they were."""
        work, backend = call.effort, self.asker.backend
        if work is None or not call.calls or not stage.calls:
            return call
        length = max(1, round(stage.output_tokens / stage.calls))
        sampling = replace(self._samplings[stage.name], max_tokens=length)
        counts = [round(work.prompt_tokens / call.calls)] * call.calls
        cached = int((call.hit_rate or 0.0) * work.prompt_tokens)
        return replace(
            call, effort=replace(work, seconds=backend.predict(counts, sampling, cached))
        )
