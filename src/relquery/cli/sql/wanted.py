"""What is to be done with a query: run it, preview it, or explain it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relquery.cli.terminal.tables import check_output
from relquery.connection import Connection
from relquery.errors import ConfigError
from relquery.progress.watch import Watch
from relquery.report import Report
from relquery.sql.result import Result

if TYPE_CHECKING:
    from relquery.sql.explain.explanation import SqlExplanation
    from relquery.sql.preview import Preview


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it; what does not apply is None."""

    result: Result
    explanation: SqlExplanation | None = None
    preview: Preview | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """explains: whether nothing is asked. shares: see `Connection.explain`. previews: on how many
    rows to run it; None for all. html: where to write a page about the run. costs: whether the
    explanation is about costs.
    """

    explains: bool
    shares: float | Mapping[str, float] | None
    previews: int | None
    html: Path | None = None
    costs: bool = False

    def check(self, output: Path | None) -> None:
        """Raises ConfigError for options that exclude each other, or a page without a folder."""
        if self.explains and self.previews is not None:
            raise ConfigError("--preview runs a query and --explain does not. Give one of them.")
        if not self.explains and self.previews is None:
            if self.html is not None:
                check_output(self.html, None, "--html")
            return
        what = "explanation" if self.explains else "preview"
        if self.html is not None:
            raise ConfigError(f"--html is a page about a whole run, not about the {what}.")
        if output is not None:
            raise ConfigError(
                f"--output {output} would be overwritten with the {what}. Remove --output, or "
                f"print the {what} with --format csv or --format json."
            )

    def of(
        self, con: Connection, query: str, params: Any, sampling: dict[str, Any], advance: Watch
    ) -> Outcome:
        """Do it. advance: told of progress."""
        if self.explains:
            told = con.explain(query, params, selectivity=self.shares, cost=self.costs, **sampling)
            return Outcome(Result(told.arrow(), (), Report()), told)
        if self.previews is not None:
            seen = con.preview(query, params, rows=self.previews, progress=advance, **sampling)
            return Outcome(seen.result, preview=seen)
        is_recorded = self.html is not None
        return Outcome(con.sql(query, params, progress=advance, record=is_recorded, **sampling))
