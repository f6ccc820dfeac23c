"""What `scripts/bench prompt-cache` measures with."""

from __future__ import annotations

from dataclasses import dataclass

QUERIES = 200
"""Whose passages the tokenizer is trained on."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """models: by what their figures are called. lengths: tokens of the imported modules, each of
    `module` tokens. rounds: for each length. questions: over passages. cases: whose
    answers are checked, of each task. schema: modules in the large schema, each of `each` tokens.
    """

    models: tuple[tuple[str, str], ...]
    lengths: tuple[int, ...]
    module: int = 512
    rounds: int = 5
    questions: int = 12
    cases: int = 1_000
    schema: int = 10_000
    each: int = 100


FULL = Sizes(
    (
        ("10m", "random:layers=8,hidden=320,heads=5,ffn=864,context=65536"),
        ("100m", "random:layers=12,hidden=768,heads=12,ffn=2304,context=65536"),
    ),
    (1024, 2048, 3072, 4096, 5120),
)
QUICK = Sizes(
    (("10m", "random:layers=2,hidden=64,heads=2,ffn=128,context=8192"),),
    (256, 512),
    module=128,
    rounds=1,
    questions=2,
    cases=20,
    schema=200,
    each=20,
)


def choose(quick: bool) -> Sizes:
    """The sizes of a run."""
    return QUICK if quick else FULL
