"""EXPLAIN ANALYZE of one statement: its stages are predicted once it is known how many rows passed.

So what is compared is how EXPLAIN counts, not what somebody guesses of the answers. The prediction
is made after the calls and before the statement writes anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from relquery.sql.analyze.analysis import compared
from relquery.sql.analyze.measured import Measuring
from relquery.sql.executor.execute import Execution
from relquery.sql.explain.explain import Explainer
from relquery.sql.explain.shares import Shares


@dataclass(slots=True)
class Analysis:
    """What is measured of a statement. execution: runs its stages.

    kinds: how many stages of each kind there were before.
    """

    execution: Execution
    kinds: Counter[str] = field(init=False)
    _before: frozenset[str] = field(init=False)
    _stored: set[bytes] = field(default_factory=set)
    _measuring: Measuring = field(default_factory=Measuring)

    def __post_init__(self) -> None:
        self.kinds = Counter(self.execution.paid.kinds)
        self._before = frozenset(self.execution.paid.stages)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """A block in which the stages run."""
        self.execution.start = self._measuring.start
        ledger = self.execution.asker.ledger
        if ledger is not None:
            ledger.noted = self._stored
        try:
            yield
        finally:
            if ledger is not None:
                ledger.noted = None

    def explainer(self) -> Explainer:
        """Predicts the stages from what was measured, with the ledger as it was."""
        lengths = {
            stage.name: stage.output_tokens / stage.calls
            for stage in self.execution.paid.stages.values()
            if stage.calls
        }
        shares = Shares(measured=self._measuring.counts, lengths=lengths)
        execution = self.execution
        return Explainer(
            execution.database, execution.scratch, execution.asker, shares, self._stored,
            kinds=self.kinds,
        )  # fmt: skip

    def table(self, foretold: Explainer) -> pa.Table:
        """What was predicted beside what was measured."""
        stages = self.execution.paid.stages.values()
        return compared(foretold.calls, (one for one in stages if one.name not in self._before))
