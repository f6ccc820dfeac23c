"""The cost of a query, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import floor, sqrt
from typing import Any

from relquery.html import boxed, lines, of_columns

_NORMAL_95 = 1.959964
_ROUNDING = 1e-9  # of a share that is written with two digits
_PINNED = "pinned: "
_TOTALS = (
    "seconds",
    "calls",
    "ledger_hits",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "errors",
    "solver_seconds",
    "hit_rate",
    "usd",
)
_SUMS = (
    "rows",
    "skipped",
    "calls",
    "ledger_hits",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "attempts",
    "errors",
    "seconds",
    "solver_seconds",
)


@dataclass(frozen=True, slots=True)
class StageReport:
    """One LLM call of the query, over all its rows."""

    name: str
    """What the call is for, numbered in the order run, e.g. "filter 1"."""
    expression: str
    """The call as the user wrote it."""
    rows: int
    """Rows that needed an answer."""
    calls: int
    """Distinct requests sent to the backend."""
    ledger_hits: int
    """Distinct requests that were answered before and not sent again."""
    prompt_tokens: int
    """Tokens of the prompts that were sent."""
    cached_tokens: int
    """Tokens of the prompts that came from a cache."""
    output_tokens: int
    """Tokens of the answers."""
    attempts: int
    """Requests made for the calls, including retries."""
    errors: int
    """Rows left without a value."""
    seconds: float
    """Seconds of the whole stage."""
    solver_seconds: float
    """The part of `seconds` spent on finding the order."""
    order: str
    """The reordering method; "pinned: agreement 0.84 of 50" if a guard found that the order of
    fields changes answers, so that fields were sent as written."""
    phr: float
    """The solver's prefix hit rate, 0 to 1, over fields of the distinct inputs; cached tokens also
    include the text before the fields."""
    statement: int | None = None
    """The number of the statement, from 1, if the query has several."""
    agreement: float | None = None
    """The share of answers, 0 to 1, that were the same in both orders; None if there was no guard
    or nothing to compare."""
    compared: int | None = None
    """Inputs whose answers in two orders a guard compared."""
    skipped: int = 0
    """Rows that were not asked because all fields of the call are NULL."""
    model: str = ""
    """The model that was asked; empty if nothing was."""
    usd: float | None = None
    """What the requests cost; None without a price."""
    note: str | None = None
    """A sentence that nothing was learnt; None otherwise."""

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens served from the cache, 0 to 1."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def is_pinned(self) -> bool:
        """Whether fields were sent as written because answers change with their order."""
        return self.order.startswith(_PINNED)

    @property
    def agreement_interval(self) -> tuple[float, float] | None:
        """The 95% confidence interval of the agreement (Wilson 1927)."""
        if self.agreement is None or not self.compared:
            return None
        return wilson_interval(self.agreement, self.compared)

    def plus(self, more: StageReport) -> StageReport:
        """The same stage with some more rows: sums, and the mean hit rate of the calls."""
        sums = {name: getattr(self, name) + getattr(more, name) for name in _SUMS}
        calls = self.calls + more.calls
        phr = (self.phr * self.calls + more.phr * more.calls) / calls if calls else 0.0
        agreed = self if self.compared else more
        return replace(
            self,
            **sums,
            phr=phr,
            order=more.order,
            agreement=agreed.agreement,
            compared=agreed.compared,
            model=self.model or more.model,
            usd=_usd_of((self, more)),
        )


@dataclass(frozen=True, slots=True)
class Report:
    """All stages in the order run. `seconds` is the whole query, including its plain SQL."""

    stages: tuple[StageReport, ...] = ()
    seconds: float = 0.0
    compared_by: str = ""
    """What compared texts, e.g. "AI_SIMILARITY by spelling"; "" if nothing did."""

    @property
    def calls(self) -> int:
        """Distinct requests sent to the backend."""
        return sum(stage.calls for stage in self.stages)

    @property
    def ledger_hits(self) -> int:
        """Distinct requests answered from the ledger."""
        return sum(stage.ledger_hits for stage in self.stages)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all requests sent, including cached ones."""
        return sum(stage.prompt_tokens for stage in self.stages)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens served from the cache."""
        return sum(stage.cached_tokens for stage in self.stages)

    @property
    def output_tokens(self) -> int:
        """Tokens of all answers."""
        return sum(stage.output_tokens for stage in self.stages)

    @property
    def errors(self) -> int:
        """Rows left without a value, summed over stages."""
        return sum(stage.errors for stage in self.stages)

    @property
    def solver_seconds(self) -> float:
        """Seconds spent on finding orders."""
        return sum(stage.solver_seconds for stage in self.stages)

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens served from the cache, 0 to 1."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def usd(self) -> float | None:
        """What all requests cost; None if no price is known."""
        return _usd_of(self.stages)

    @property
    def by_model(self) -> dict[str, Report]:
        """The stages that asked each model, by its name, with their seconds."""
        by_name: dict[str, list[StageReport]] = {}
        for stage in self.stages:
            if stage.model:
                by_name.setdefault(stage.model, []).append(stage)
        return {
            name: Report(tuple(stages), sum(stage.seconds for stage in stages))
            for name, stages in by_name.items()
        }

    @property
    def notes(self) -> list[str]:
        """Where nothing was learnt, a line each."""
        return [f"{stage.name}: {stage.note}" for stage in self.stages if stage.note]

    @property
    def summary(self) -> str:
        """The totals in a line: `12 calls, 5,103 prompt tokens (62% cached), ... in 0.42 s`."""
        if not self.stages:
            return ""
        known = f" and {self.ledger_hits:,} from the ledger" if self.ledger_hits else ""
        calls = f"{self.calls:,} {'call' if self.calls == 1 else 'calls'}"
        cached = f" ({self.hit_rate:.0%} cached)" if self.prompt_tokens else ""
        return (
            f"{calls}{known}, {self.prompt_tokens:,} prompt tokens{cached}, "
            f"{self.output_tokens:,} output tokens, {self.seconds:.2f} s"
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON: totals, and the stages as a list."""
        totals: dict[str, Any] = {name: getattr(self, name) for name in _TOTALS}
        stages = [
            asdict(stage)
            | {"hit_rate": stage.hit_rate, "agreement_interval": stage.agreement_interval}
            for stage in self.stages
        ]
        compared = {"compared_by": self.compared_by} if self.compared_by else {}
        return totals | compared | {"stages": stages}

    def __str__(self) -> str:
        shown = in_columns(self.columns()) if self.stages or not self.compared_by else ""
        return "\n".join(filter(None, [shown, *self.notes, self.compared_by]))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For IPython in a terminal."""
        printer.text("..." if cycle else str(self))

    def _repr_html_(self) -> str:
        """For notebooks."""
        columns = self.columns()
        shown = of_columns(columns, ("stage", "model", "agreement", "order")) if self.stages else ""
        said = [self.summary or "No LLM calls", *self.notes, self.compared_by]
        return boxed(shown, lines(list(filter(None, said))))

    @property
    def title(self) -> str:
        """The number of calls, the seconds and the order."""
        orders = " and ".join(sorted({stage.order.partition(":")[0] for stage in self.stages}))
        calls = "call" if self.calls == 1 else "calls"
        said = f"{self.calls:,} LLM {calls} in {self.seconds:.2f} s, {orders} order"
        return f"{said}, {self.compared_by}" if self.compared_by else said

    def columns(self) -> dict[str, list[str]]:
        """Cells by heading; columns that are usually zero are left out if zero in all stages."""
        shown = {
            "statement": [str(stage.statement or "") for stage in self.stages],
            "stage": [stage.name for stage in self.stages],
            "model": [stage.model for stage in self.stages],
            "rows": [f"{stage.rows:,}" for stage in self.stages],
            "only NULL": [f"{stage.skipped:,}" for stage in self.stages],
            "calls": [f"{stage.calls:,}" for stage in self.stages],
            "from ledger": [f"{stage.ledger_hits:,}" for stage in self.stages],
            "prompt": [f"{stage.prompt_tokens:,}" for stage in self.stages],
            "cached": [f"{s.cached_tokens:,} ({s.hit_rate:.0%})" for s in self.stages],
            "output": [f"{stage.output_tokens:,}" for stage in self.stages],
            "errors": [f"{stage.errors:,}" for stage in self.stages],
            "seconds": [f"{stage.seconds:.2f}" for stage in self.stages],
            "USD": ["" if s.usd is None else f"{s.usd:.4g}" for s in self.stages],
            "agreement": [_agreement(stage) for stage in self.stages],
            "order": [stage.order for stage in self.stages],
        }
        unusual = {
            "statement": any(stage.statement for stage in self.stages),
            "model": len(self.by_model) > 1,
            "USD": self.usd is not None,
            "only NULL": any(stage.skipped for stage in self.stages),
            "from ledger": self.ledger_hits,
            "errors": self.errors,
            "agreement": any(stage.compared for stage in self.stages),
        }
        return {name: cells for name, cells in shown.items() if unusual.get(name, 1)}


def _usd_of(stages: Iterable[StageReport]) -> float | None:
    known = [stage.usd for stage in stages if stage.usd is not None]
    return sum(known) if known else None


def in_columns(cells: Mapping[str, Sequence[str]], *, numbers: bool = False) -> str:
    """Lines of cells below their headings, none cut.

    numbers: whether all columns but the first hold numbers, which are aligned right.
    """
    columns = [[heading, *column] for heading, column in cells.items()]
    widths = [max(map(len, column)) for column in columns]
    rows = zip(*columns, strict=True)
    ways = [str.ljust, *[str.rjust if numbers else str.ljust] * (len(columns) - 1)]
    aligned = ([to(*cell) for to, *cell in zip(ways, row, widths, strict=True)] for row in rows)
    return "\n".join("  ".join(row).rstrip() for row in aligned)


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """The 95% confidence interval of a share, 0 to 1 (Wilson 1927).

    count: the number of cases in which it was found, at least 1.
    """
    z = _NORMAL_95
    middle = share + z**2 / (2 * count)
    spread = z * sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    low, high = ((middle + side) / (1 + z**2 / count) for side in (-spread, spread))
    # Rounding must not leave the share itself outside.
    return max(0.0, min(low, share)), min(1.0, max(high, share))


def _agreement(stage: StageReport) -> str:
    interval = stage.agreement_interval
    if stage.agreement is None or interval is None:
        return ""
    low, high = in_digits(interval[0]), 1 - floor((1 - interval[1]) * 100 + _ROUNDING) / 100
    return f"{in_digits(stage.agreement)} of {stage.compared} ({low} to {high:.2f})"


def in_digits(agreement: float) -> str:
    """An agreement with two digits, rounded down: 1.00 only if all answers are the same."""
    return f"{floor(agreement * 100 + _ROUNDING) / 100:.2f}"
