"""How many answers of a trained model change, and how many are right, with modules or our order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from benchmarks.retrieval.t5.run import Squad, found, query
from relquery.backends.base import Answers
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import Order
from relquery.connection import connect
from relquery.demo.files import model_path
from relquery.prompt import Finish, Prompt, Sampling

PLACES: dict[str, tuple[str, Order]] = {
    "as retrieved": (found(3), "original"),
    "our order": (found(3), "tree"),
    "modules, as retrieved": (f"MODULE({found(3)})", "original"),
}
"""Passages in SQL, and the order: three passages, because five exceed the model's context."""
PLAIN, REORDERED, APART = PLACES


@dataclass(frozen=True, slots=True)
class Changed:
    """answers: by side, one for each question. expected: the right ones; "" where there is none."""

    answers: dict[str, list[str | None]]
    expected: list[str]

    def share(self, side: str) -> float:
        """Of the answers, how many differ from PLAIN's. Prompts that are too long have none."""
        pairs = zip(self.answers[side], self.answers[PLAIN], strict=True)
        differ = [first != two for first, two in pairs if first is not None and two is not None]
        return sum(differ) / len(differ)

    @property
    def unanswered(self) -> int:
        """Questions that have no answer on some side."""
        return sum(None in answers for answers in zip(*self.answers.values(), strict=True))

    def right(self, side: str) -> int:
        """Answers that hold the expected text, in any case."""
        pairs = zip(self.answers[side], self.expected, strict=True)
        return sum(
            bool(wanted) and wanted.lower() in (said or "").lower() for said, wanted in pairs
        )

    @property
    def answerable(self) -> int:
        """Questions that have a right answer."""
        return sum(map(bool, self.expected))


class Shortened(EmbeddedBackend):
    """Takes an answer that is cut at its length as a whole one."""

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend.answer."""
        for index, answer in super().answer(prompts, sampling):
            is_cut = answer.finish is Finish.LENGTH
            yield index, replace(answer, finish=Finish.STOP, error=None) if is_cut else answer


def compare(squad: Squad) -> Changed:
    """Ask the demo model the same on all sides, greedily."""
    from relquery.model.load import load

    model, answers = load(str(model_path())), dict[str, list[str | None]]()
    for side, (passages, order) in PLACES.items():
        with (
            closing(Shortened(model)) as backend,
            closing(connect(backend, ledger=None, order=order, form="json")) as connection,
        ):
            for table, rows in squad.tables().items():
                connection.register(table, rows)
            result = connection.sql(query(passages).sql())
            answers[side] = [answer for _, answer in result.fetchall()]
    return Changed(answers, squad.answers)
