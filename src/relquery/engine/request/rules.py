"""What the answer to a request may be, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relquery.prompt import Finish

Tokens = Sequence[int]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that the requests of one call share.

    end: token ids that end the answer and are not part of it. labels: if not empty, the answer is
    one of these token sequences. stop: whether an output that has just grown contains a stop
    string. decided: whether an unfinished output can no longer equal any of the compared texts.
    """

    end: frozenset[int] = frozenset()
    labels: tuple[tuple[int, ...], ...] = ()
    stop: Callable[[Tokens], bool] | None = None
    decided: Callable[[Tokens], bool] | None = None

    @property
    def is_free(self) -> bool:
        """Whether only an end token or its length ends the answer."""
        return not self.labels and self.stop is None and self.decided is None

    def finish(self, output: Tokens) -> Finish | None:
        """How an output that has just grown has ended; None if it goes on."""
        if self._chosen(output) or (self.stop is not None and self.stop(output)):
            return Finish.STOP
        if self.decided is not None and self.decided(output):
            return Finish.DECIDED
        return None

    def allowed_next(self, output: Tokens) -> tuple[int, ...]:
        """Token ids that may follow an output under `labels`, sorted; empty for all.

        If the output is itself a label and a longer label begins with it, the end tokens are
        allowed too.
        """
        if not self.labels:
            return ()
        done, begun = len(output), list(output)
        possible = [label for label in self.labels if list(label[:done]) == begun]
        following = {label[done] for label in possible if len(label) > done}
        if any(len(label) == done for label in possible):
            following |= self.end
        return tuple(sorted(following))

    def forced(self, output: Tokens) -> int | None:
        """The only token that may follow, which needs no step; None if there is a choice."""
        allowed = self.allowed_next(output)
        return allowed[0] if len(allowed) == 1 else None

    def _chosen(self, output: Tokens) -> bool:
        """Whether an output is a label that no other label continues."""
        if not self.labels:
            return False
        done, begun = len(output), list(output)
        return not any(len(label) > done and list(label[:done]) == begun for label in self.labels)
