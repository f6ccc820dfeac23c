"""The result of a span query."""

from __future__ import annotations

from dataclasses import dataclass

from relquery.prompt import Answer, Sampling


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation that was run."""

    where: str
    """Its place in the optimised tree: `generate/plus[2]`."""
    sampling: Sampling
    answer: Answer


@dataclass(frozen=True, slots=True)
class SpanReport:
    """The cost of a query."""

    generations: tuple[Generation, ...]
    """The generations in the order in which they ended."""
    seconds: float
    """Seconds from the start to the query's end; in a bulk run, from the start of the run."""
    notes: tuple[str, ...] = ()
    """Notes for a reader of the answer, e.g. that an inner answer was cut off."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, including inner exchanges each time they are read."""
        return sum(generation.answer.prompt_tokens for generation in self.generations)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens whose attention states came from the cache."""
        return sum(generation.answer.cached_tokens for generation in self.generations)

    @property
    def output_tokens(self) -> int:
        """Tokens of all answers."""
        return sum(generation.answer.output_tokens for generation in self.generations)

    def __str__(self) -> str:
        cached = self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0
        count = len(self.generations)
        return (
            f"{count} generation{'s' * (count != 1)}, {self.prompt_tokens:,} prompt tokens, "
            f"{self.cached_tokens:,} ({cached:.0%}) from the cache, {self.output_tokens:,} output "
            f"tokens, {self.seconds:.2f} s"
        )


@dataclass(frozen=True, slots=True, repr=False)
class SpanResult:
    """A query's outcome."""

    texts: tuple[str, ...]
    """The answer; for a tree that is not a single generation, its texts and answers in order."""
    answer: Answer | None
    """The outermost generation's answer with its finish reason; None if there is none."""
    report: SpanReport
    error: str | None = None
    """Why there is no complete result; `texts` is then empty. Only in a bulk run; a single query
    raises."""

    @property
    def text(self) -> str:
        """The texts, one per line."""
        return "\n".join(self.texts)

    def __str__(self) -> str:
        return f"{self.text if self.error is None else self.error}\n({self.report})"

    def __repr__(self) -> str:
        shown = self.text if self.error is None else f"error: {self.error}"
        return f"<SpanResult {shown[:60]!r}: {self.report}>"
