"""How much `scripts/bench spans` measures: in a quick run, on a CPU, or on an accelerator."""

from __future__ import annotations

from dataclasses import dataclass

VOCABULARY = 4096


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is measured, and how often.

    model: random weights of this shape. repeats: of a timing; the median is used.
    documents: per prompt, for each row of the table; the first and the last give figures.
    document_tokens: of each document. cache_tokens: of every engine except those of bulks.
    executions: of the nested query that gives figures. others: of each other nested query.
    fan_outs: numbers of inner generations; the last gives figures. inner_tokens: of their answers.
    queries: of a bulk. spans: sizes of moved spans, in tokens. steps: of decoding.
    hays: words around each needle. cases: for each of these. generated_hays, generated_cases: the
        same for generated texts.
    """

    model: str
    repeats: int = 5
    documents: tuple[int, ...] = (1, 2, 4, 8, 16)
    document_tokens: int = 512
    cache_tokens: int = 16_384
    executions: int = 30
    others: int = 10
    fan_outs: tuple[int, ...] = (1, 24)
    temperatures: tuple[float, ...] = (0.0, 0.5, 1.0)
    inner_tokens: int = 256
    queries: int = 1_000
    spans: tuple[int, ...] = (64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192)
    steps: int = 64
    hays: tuple[int, ...] = (0, 4, 8, 16, 24, 32, 48, 64, 96)
    cases: int = 100
    generated_hays: tuple[int, ...] = (8, 16, 32, 48)
    generated_cases: int = 50


PROCESSOR = Sizes("random:layers=8,hidden=288,heads=4,ffn=1152")
ACCELERATOR = Sizes("random:layers=16,hidden=1024,heads=16,ffn=4096", repeats=10)
QUICK = Sizes(
    "random:layers=4,hidden=288,heads=4,ffn=1152",
    repeats=1,
    documents=(1, 16),
    executions=3,
    others=0,
    fan_outs=(24,),
    temperatures=(0.5,),
    inner_tokens=64,
    queries=30,
    spans=(64, 512, 4_096),
    steps=16,
    hays=(0, 16, 48),
    cases=10,
    generated_hays=(48,),
    generated_cases=5,
)


def choose(quick: bool) -> Sizes:
    """The sizes for this machine."""
    if quick:
        return QUICK
    from relquery.model.load import load
    from relquery.model.native_model import NativeModel

    chosen = load("random:layers=1,hidden=64")  # where models go unless told
    return PROCESSOR if isinstance(chosen, NativeModel) else ACCELERATOR
