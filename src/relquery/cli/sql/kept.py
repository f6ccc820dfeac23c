"""What is kept of the answers that came to a query which was interrupted."""

from __future__ import annotations

from dataclasses import dataclass, field

from relquery.ledger import Ledger
from relquery.progress.watch import Watch


@dataclass(slots=True)
class Came:
    """answers: of the model to this query. known: those that the ledger knew before."""

    answers: int = 0
    known: int = 0
    _done: dict[str, int] = field(default_factory=dict)

    def counting(self, watch: Watch) -> Watch:
        """Also report progress: new answers one at a time, known ones all at once."""

        def count(stage: str, done: int, total: int) -> None:
            more = done - self._done.get(stage, 0)
            if stage in self._done and more == 1:
                self.answers += 1
            else:
                self.known += more
            self._done[stage] = done

        return watch.after(count)


def what_is_kept(
    ledger: Ledger | None, came: Came, go_on: str = "run the same command to go on"
) -> str:
    """What to tell the user after an interrupt. go_on: how, where a file keeps the answers."""
    kept = 0 if ledger is None else ledger.stored
    if not kept and not came.answers:
        if came.known and ledger is not None and ledger.path is not None:
            return (
                f"No new answer had arrived; the {came.known} known ones stay in {ledger.path}. "
                f"{go_on[0].upper()}{go_on[1:]}."
            )
        return "No answer had arrived."
    if not kept:
        return (
            "No answer of this run is kept: only whole ones are, and above temperature 0 only with "
            "--seed."
        )
    if ledger is None or ledger.path is None:
        return "Give --ledger FILE to keep what is answered."
    return f"Answers so far are in {ledger.path} ({kept} new); {go_on}."
