"""The explanation of a span query: rules applied, prompts, tokens, and what is in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relquery.backends.base import Backend
from relquery.errors import ConfigError, RequestError
from relquery.ir.nodes import Generate, Node
from relquery.ir.optimize import Goal, RewriteStep, optimize
from relquery.ir.paths import verify
from relquery.prompt import Exchange, Nest, Prompt, Reuse, Span
from relquery.spans.bags import order_bags
from relquery.spans.corpus import Corpora, lookup
from relquery.spans.execute import Progress, execute
from relquery.spans.orders import Orders
from relquery.spans.work import QueryWork

_SHOWN = 60  # characters of a text
_LINES = 8  # of a tree before and after a rule
_TREE = 60  # lines of the whole tree; the middle of a longer one is left out
_LISTED = 16  # maximum number of steps, of prompts, and of spans per prompt


@dataclass(frozen=True, slots=True)
class ExplainedSpan:
    """A part of a prompt."""

    preview: str
    depth: int
    """The number of nested independent spans that it is in."""
    tokens: int | None = None
    """The number of its tokens; None if the backend does not say."""
    cached: int | None = None
    """The number of those in the cache; None if the backend does not say."""

    @property
    def independent(self) -> bool:
        """Whether it is in an independent span."""
        return self.depth > 0


@dataclass(frozen=True, slots=True)
class ExplainedPrompt:
    """The prompt of one generation."""

    where: str
    pieces: tuple[ExplainedSpan, ...]
    """Empty while it waits for `waits_for` others."""
    waits_for: int = 0
    seconds: float | None = None
    """The most seconds that it takes when run alone, as predicted by the backend; None if the
    backend does not predict."""


@dataclass(frozen=True, slots=True)
class SpanExplanation:
    """The explanation of a span query."""

    before: Node
    """The tree as given."""
    after: Node
    """The tree as it will run."""
    steps: tuple[RewriteStep, ...]
    """The rewrites, in order."""
    asks: tuple[ExplainedPrompt, ...]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for number, step in enumerate(self.steps[:_LISTED], 1):
            yield f"{number}. {step.rule} at {step.where}"
            yield from _shortened(step.before, "     ")
            yield from _shortened(step.after, "  => ")
        yield from _more(len(self.steps) - _LISTED, "steps")
        yield "Optimised:" if self.steps else "Nothing to rewrite:"
        yield from (f"  {line}" for line in _middle_left_out(str(self.after).split("\n")))
        for ask in self.asks[: _LISTED - 1]:
            yield from _shown(ask)
        yield from _more(len(self.asks) - _LISTED, "prompts")
        for ask in self.asks[_LISTED - 1 :][-1:]:  # the outermost
            yield from _shown(ask)


def explain(
    node: Node,
    backend: Backend | None = None,
    *,
    for_: Goal = "cache",
    arity: int = 2,
    corpora: Corpora | None = None,
    warm: bool = False,
    progress: Progress | None = None,
    orders: Orders | None = None,
) -> SpanExplanation:
    """Explain what `run` would do with a query.

    backend: counts tokens, checks its cache and predicts seconds as far as it can (see
        Backend.inspect and Backend.predict); it generates nothing. warm: run the inner generations
        first, so that the outermost prompt is known and its exchanges are in the cache.
    For the other arguments, see `run`. Raises what `run` raises, and ConfigError for `warm`
    without a backend.
    """
    verify(node)
    find, steps = lookup(corpora or {}), list[RewriteStep]()
    optimized = optimize(node, for_, arity=arity, retrieve=find, trace=steps)
    (after,) = order_bags([optimized], orders or Orders(), keep=warm, traces=[steps])
    work = QueryWork(after, find, hold_root=True)
    if warm:
        if backend is None:
            raise ConfigError("warm is set, but there is no backend. Pass a backend.")
        for _ in execute([work], backend, progress=progress):
            if work.error is not None:
                raise RequestError(work.error)
    asks = tuple(_ask(work, task, backend) for task in work.generates)
    return SpanExplanation(node, after, tuple(steps), asks)


def _ask(work: QueryWork, task: Generate, backend: Backend | None) -> ExplainedPrompt:
    waits_for = work.waits_for(task)
    if waits_for:
        return ExplainedPrompt(work.where(task), (), waits_for)
    prompt = work.prompt(task)
    states = None if backend is None else backend.insight.inspect(prompt)
    if backend is None or states is None:
        parts = tuple(
            ExplainedSpan(_short(_text(span)), depth) for span, depth in _parts(prompt, 0)
        )
        return ExplainedPrompt(work.where(task), parts)
    pieces = tuple(
        ExplainedSpan(_short(state.preview), state.depth, state.tokens, state.cached)
        for state in states
    )
    tokens, cached = (sum(state.tokens for state in states), sum(state.cached for state in states))
    seconds = backend.insight.predict([tokens], task.sampling, cached)
    return ExplainedPrompt(work.where(task), pieces, seconds=seconds)


def _parts(prompt: Prompt, depth: int) -> Iterator[tuple[Span, int]]:
    """Spans and the parts of nests, each with the number of independent spans around it."""
    for span in prompt:
        inside = depth + (span.reuse is Reuse.INDEPENDENT)
        if isinstance(span.content, Nest):
            yield from _parts(span.content.spans, inside)
        else:
            yield span, inside


def _text(span: Span) -> str:
    if isinstance(span.content, str):
        return span.content
    if isinstance(span.content, tuple):
        return f"{len(span.content)} tokens"
    assert isinstance(span.content, Exchange), "a nest is explained part by part"
    first = span.content.prompt[0].content if span.content.prompt else ""
    said = first if isinstance(first, str) else "..."
    return f"{said} ... and its answer of {len(span.content.output)} tokens"


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}...")


def _shortened(node: Node, lead: str) -> Iterator[str]:
    lines = str(node).split("\n")
    shown = lines if len(lines) <= _LINES else [*lines[: _LINES - 1], f"... {len(lines)} lines"]
    for number, line in enumerate(shown):
        yield (lead if number == 0 else " " * len(lead)) + _fitting(line)


def _middle_left_out(lines: list[str]) -> Iterator[str]:
    """The lines of a tree; of one with more than _TREE, the first and the last."""
    if len(lines) <= _TREE:
        yield from lines
        return
    half = _TREE // 2
    yield from map(_fitting, lines[:half])
    yield from _more(len(lines) - 2 * half, "lines")
    yield from map(_fitting, lines[-half:])


def _fitting(line: str) -> str:
    return line if len(line) <= _SHOWN + 20 else f"{line[: _SHOWN + 17]}..."


def _more(count: int, what: str) -> Iterator[str]:
    if count > 0:
        yield f"... {count:,} more {what}"


def _shown(ask: ExplainedPrompt) -> Iterator[str]:
    if ask.waits_for:
        yield f"{ask.where}: waits for {ask.waits_for} others"
        return
    counted = [piece for piece in ask.pieces if piece.tokens is not None]
    if not counted:
        yield f"{ask.where}:"
    else:
        tokens = sum(piece.tokens or 0 for piece in counted)
        cached = sum(piece.cached or 0 for piece in counted)
        takes = "" if ask.seconds is None else f", at most {ask.seconds:.3g} s when run alone"
        yield f"{ask.where}: {tokens:,} tokens, {cached:,} in the cache{takes}"
    yield from (f"  {_line(piece)}" for piece in ask.pieces[:_LISTED])
    yield from (f"  {line}" for line in _more(len(ask.pieces) - _LISTED, "spans"))


def _line(piece: ExplainedSpan) -> str:
    kind = "independent" if piece.independent else "prefix     "
    said = "  " * (piece.depth - 1) + piece.preview  # deeper nesting is indented further
    if piece.tokens is None:
        return f"{kind}  {said}"
    return f"{piece.tokens:>6}  {piece.cached:>6} cached  {kind}  {said}"
