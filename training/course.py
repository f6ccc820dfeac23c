"""The demo model's curriculum: its lessons, their order, and the learning rate."""

from __future__ import annotations

from dataclasses import dataclass

from training.lessons.lessons import Mix


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of training: which lessons, and how many million tokens of them.

    needles: share of needle lessons. hay: the most words of hay in one. apart: share of lessons
    whose fields and texts are modules.
    """

    name: str
    tokens: float
    mix: Mix
    needles: float = 0.0
    hay: int = 0
    apart: float = 0.0


@dataclass(frozen=True, slots=True)
class Course:
    """Stages from a beginning to an exported model.

    rate: the highest learning rate. context: share of context tokens that are also predicted;
    they count less than the answers.
    """

    stages: tuple[Stage, ...]
    rate: float
    context: float

    @property
    def tokens(self) -> int:
        """Number of tokens in all stages."""
        return int(sum(stage.tokens for stage in self.stages) * 1e6)

    def at(self, tokens: int) -> tuple[Stage, float]:
        """The stage after `tokens`, and the rate's factor: 1, and falling in the last stage."""
        done = tokens / 1e6
        for stage in self.stages[:-1]:
            if done < stage.tokens:
                return stage, 1.0
            done -= stage.tokens
        return self.stages[-1], max(0.0, 1.0 - done / self.stages[-1].tokens)


ALL_FIELDS = Mix((0, 7), 0.05, 0.50, 1.0, 10, (5, 3, 4, 3))
# Mix: extra fields; shares of recall, single questions, system prompt; most turns; kind weights.
ROWS = Course(
    (
        Stage("needed fields", 2.0, Mix((0, 1), 0.15, 0.20, 0.0, 8, (4, 6, 2, 1))),
        Stage("few fields", 1.8, Mix((0, 2), 0.30, 0.20, 0.2, 6, (3, 3, 4, 1))),
        Stage("half the fields", 2.2, Mix((0, 4), 0.20, 0.30, 0.5, 8, (5, 3, 4, 3))),
        Stage("all fields", 6.5, Mix((0, 7), 0.12, 0.40, 1.0, 10, (5, 3, 4, 3))),
        Stage("cool-down", 4.0, ALL_FIELDS),  # the rate falls to zero
    ),
    rate=3e-3,
    context=0.25,
)
NEEDLES = Course(  # hay is random, so that the context teaches nothing
    (
        Stage("little hay", 0.8, ALL_FIELDS, needles=0.85, hay=16),
        Stage("more hay", 1.2, ALL_FIELDS, needles=0.8, hay=64),
        Stage("most hay", 4.0, ALL_FIELDS, needles=0.75, hay=128),
        Stage("hay, cool-down", 5.0, ALL_FIELDS, needles=0.75, hay=128),
    ),
    rate=2e-3,
    context=0.0,
)
MODULES = Course(  # half of the lessons have block-sparse attention
    (
        Stage("modules", 6.0, ALL_FIELDS, needles=0.5, hay=192, apart=0.5),
        Stage("modules, cool-down", 9.0, ALL_FIELDS, needles=0.5, hay=192, apart=0.5),
    ),
    rate=2e-3,
    context=0.0,
)
