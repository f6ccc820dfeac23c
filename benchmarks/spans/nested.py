"""Time to the first token of a judge over generated answers (paper 002, Fig. 14 and 15)."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table
from benchmarks.spans.on_model import OnModel
from benchmarks.spans.setup import Writer, sides, timed
from benchmarks.spans.sizes import Sizes
from benchmarks.templates import template
from relquery import span
from relquery.config import EngineConfig
from relquery.connection import Connection
from relquery.ir.nodes import Generate
from relquery.spans.work import SpanResult

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

INSTRUCTION_TOKENS = 30  # of the system message, and as many of the user message
JUDGED = 0.5  # temperature of the figures
QUESTION = "Which of them is the best?"


@dataclass(frozen=True, slots=True)
class Judged:
    """Seconds from when all inner answers are known to the judge's first token, per execution.

    tokens: of the judge's prompt on both sides in the last execution, and the cached ones of ours.
    """

    fan_out: int
    temperature: float
    plain: tuple[float, ...]
    ours: tuple[float, ...]
    plain_tokens: int
    our_tokens: int
    cached: int

    @property
    def ratios(self) -> list[float]:
        """Plain over ours, per execution."""
        return [plain / ours for plain, ours in zip(self.plain, self.ours, strict=True)]

    @property
    def speedup(self) -> float:
        """The median ratio."""
        return median(self.ratios)

    @property
    def lasting(self) -> float:
        """The ratio that 99 of 100 executions reach."""
        return float(np.percentile(self.ratios, 1))


def measure(model: ServedModel, sizes: Sizes, seed: int, say: Say) -> Iterator[Judged]:
    """A row for each fan-out and temperature; the row used for the figures is last."""
    settings = [(n, t) for n in sizes.fan_outs for t in sizes.temperatures]
    shown = (sizes.fan_outs[-1], JUDGED)
    writer = Writer(model, seed)
    for fan_out, temperature in sorted(settings, key=lambda setting: setting == shown):
        count = sizes.executions if (fan_out, temperature) == shown else sizes.others
        if count:
            row = _executions(model, sizes, writer, fan_out, temperature, count)
            say(
                f"{fan_out} inner at temperature {temperature}: plain over ours "
                f"{row.speedup:.1f}, 1st percentile {row.lasting:.1f}"
            )
            yield row


def _executions(
    model: ServedModel,
    sizes: Sizes,
    writer: Writer,
    fan_out: int,
    temperature: float,
    count: int,
) -> Judged:
    texts = tuple(writer.document(INSTRUCTION_TOKENS) for _ in range(2))
    plain, ours = [], []
    with sides(model, EngineConfig(cache_tokens=sizes.cache_tokens)) as (plain_side, our_side):
        for execution in range(count + 1):  # the first warms up
            inner = span.generate(
                span.system(texts[0]),
                texts[1],
                max_tokens=sizes.inner_tokens,
                temperature=temperature,
                seed=execution * fan_out,
            )
            query = _judge(span.plus(span.repeat(fan_out, inner)), QUESTION)
            seconds, result = _judge_seconds(our_side, query)
            ours.append(seconds)
            plain_query = _judge("".join(_answers(result, fan_out)) + QUESTION)
            seconds, as_text = timed(plain_side, plain_query)
            plain.append(seconds)
    judge = result.report.generations[-1].answer
    return Judged(
        fan_out,
        temperature,
        tuple(plain[1:]),
        tuple(ours[1:]),
        as_text.report.prompt_tokens,
        judge.prompt_tokens,
        judge.cached_tokens,
    )


def _judge(*read: span.Child) -> Generate:
    return span.generate(span.system("You judge answers.\n"), *read, max_tokens=1)


def _judge_seconds(connection: Connection, query: Generate) -> tuple[float, SpanResult]:
    """Seconds from the last inner answer to the judge's, and the result."""
    known = [0.0]

    def note(stage: str, answered: int, total: int) -> None:
        if answered == total - 1:
            known.append(time.perf_counter())

    result = connection.run(query, progress=note)
    return time.perf_counter() - known[-1], result


def _answers(result: SpanResult, fan_out: int) -> list[str]:
    """The inner answers as text, one line each; equal generations are repeated as often as read.

    A random model's answer may end in half a character; U+FFFD in its place would be three tokens.
    """
    inner = [generation.answer.text or "" for generation in result.report.generations[:-1]]
    texts = [text.replace("\ufffd", "?") for text in inner]
    return [f"{texts[i % len(texts)]}\n" for i in range(fan_out)]


def figures(rows: Sequence[Judged]) -> Iterator[Figure]:
    """The figures of the last row."""
    row = rows[-1]
    note = (
        f"{1e3 * median(row.plain):.0f} / {1e3 * median(row.ours):.1f} ms, {len(row.ours)} "
        f"executions; prompts of {row.plain_tokens:,} tokens as text, {row.our_tokens:,} as "
        f"exchanges, {row.cached:,} of these cached"
    )
    yield Figure("nested_ttft_24", row.speedup, 13.0, note=note)
    note = "1st percentile of the ratios, what 99 of 100 executions reach"
    yield Figure("nested_p99_24", row.lasting, 10.0, note=note)


WORDS = template("spans")


@dataclass(slots=True)
class Nested(OnModel):
    """The part."""

    name = "nested"
    title = "Nested generations"
    judged: list[Judged] = field(default_factory=list)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        model = self.load(settings, say)
        self.judged = list(measure(model, self.sizes, settings.seed, say))
        yield from figures(self.judged)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield self.setting()
        yield WORDS.block("nested", inner=self.sizes.inner_tokens)
        yield from table(
            ("inner", "temperature", "executions", "plain", "ours", "plain / ours", "1%"),
            [
                (
                    str(each.fan_out),
                    f"{each.temperature:g}",
                    str(len(each.ours)),
                    f"{1e3 * median(each.plain):.1f} ({each.plain_tokens:,})",
                    f"{1e3 * median(each.ours):.1f} ({each.our_tokens:,})",
                    f"{each.speedup:.2f}",
                    f"{each.lasting:.2f}",
                )
                for each in self.judged
            ],
        )
