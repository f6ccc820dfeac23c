"""Execution of queries: each generation is sent once its inputs are ready, with all others
ready."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from relquery.backends.base import Answers, Backend, cancel
from relquery.errors import ConfigError, QueryError
from relquery.ir.nodes import Generate
from relquery.prompt import Answer, Finish, Nest, Prompt, Reuse, Sampling, Span
from relquery.spans.work import QueryWork


def as_plain(prompt: Prompt) -> Prompt:
    """The prompt with each independent text as a line of its own, nested ones included."""
    plain: list[Span] = []
    for span in prompt:
        if span.reuse is Reuse.PREFIX:
            plain.append(span)
            continue
        for part in _leaves(span):
            plain.append(_as_line(part, span, plain))
    return tuple(plain)


def _leaves(span: Span) -> Iterator[Span]:
    """The span, or the parts of a nest in order."""
    if isinstance(span.content, Nest):
        for part in span.content.spans:
            yield from _leaves(part)
    else:
        yield span


def _as_line(part: Span, whole: Span, before: list[Span]) -> Span:
    """A part of an independent span, as plain text after `before`."""
    content = part.content
    if not isinstance(content, str):
        return part
    if not content.endswith("\n"):
        content += "\n"
    last = before[-1] if before else None
    if last is not None and last.role is whole.role and _runs_on(last):
        content = f"\n{content}"
    return Span(content, whole.role)


def _runs_on(span: Span) -> bool:
    """Whether text right after the span would continue its last word."""
    return isinstance(span.content, str) and not span.content[-1:].isspace()


T = TypeVar("T")
_NO_ANSWER = Answer(None, Finish.ERROR, "The backend gave no answer.")
Progress = Callable[[str, int, int], None]
WINDOW = 32  # concurrent queries with inner generations; few enough to keep their states cached
_Ready = tuple[QueryWork, Generate]
_Asked = tuple[QueryWork, Generate, Prompt]


def execute(
    works: Sequence[QueryWork],
    backend: Backend,
    *,
    independent: bool = True,
    progress: Progress | None = None,
) -> Iterator[QueryWork]:
    """Run queries, starting them in the given order. Yields each when it ends or fails.

    independent: False sends children of plus as ordinary text, one after another.
    progress: called with ("generations", answered so far, total).

    Raises what the backend raises; closing the iterator cancels what is open.
    """
    if progress is not None and not callable(progress):
        raise ConfigError(
            f"progress is {progress!r}; it must be a function of (stage, answered, total)."
        )
    run = _Execution(works, backend, independent, progress)
    try:
        yield from run.ended()
    finally:
        run.streams.close()


class _Execution:
    def __init__(
        self,
        works: Sequence[QueryWork],
        backend: Backend,
        independent: bool,
        progress: Progress | None,
    ) -> None:
        self.streams: Streams[_Asked] = Streams(backend)
        self._waiting = deque(works)
        self._nested = 0  # running queries that have inner generations
        self._independent, self._progress = independent, progress
        self._total, self._answered = sum(work.total for work in works), 0
        self._left = len(works)

    def ended(self) -> Iterator[QueryWork]:
        yield from self._admit()
        while self.streams and self._left:
            for (work, task, prompt), answer in self.streams.receive():
                self._answered += 1
                if self._progress is not None:
                    self._progress("generations", self._answered, self._total)
                if work.error is not None:
                    continue
                self._send(self._take(work, task, prompt, answer))
                if work.done:
                    yield self._end(work)
            yield from self._admit()

    def _admit(self) -> Iterator[QueryWork]:
        """Start the next queries. Yields those that end immediately."""
        ready: list[_Ready] = []
        while self._waiting and (self._nested < WINDOW or not self._waiting[0].nested):
            work = self._waiting.popleft()
            ready += self._guarded(work, work.start)
            self._nested += work.nested
            if work.done:
                yield self._end(work)
        for work in self._send(ready):
            yield self._end(work)

    def _end(self, work: QueryWork) -> QueryWork:
        self._nested -= work.nested
        self._left -= 1
        return work

    def _take(
        self, work: QueryWork, task: Generate, prompt: Prompt, answer: Answer
    ) -> list[_Ready]:
        trouble = None
        if answer.finish is Finish.LENGTH and answer.text is not None:
            work.notes.append(_cut(work, task, answer))
        elif answer.finish is not Finish.STOP or answer.text is None:
            trouble = answer.error or f"it ended without an answer ({answer.finish.value})."
        if trouble is not None:
            work.error = f"At {work.where(task)}: {trouble}"
            work.cancelled = answer.finish is Finish.CANCELLED
            return []
        if not self._independent:
            answer = replace(answer, tokens=None)
        return self._guarded(work, lambda: work.take(task, prompt, answer))

    def _guarded(self, work: QueryWork, step: Callable[[], list[Generate]]) -> list[_Ready]:
        """Run a step of a query. Its error fails only that query."""
        try:
            return [(work, task) for task in step()]
        except QueryError as error:
            work.error = str(error)
            return []

    def _send(self, ready: Iterable[_Ready]) -> list[QueryWork]:
        """Send prompts with equal sampling together. Returns the queries that failed."""
        groups: dict[Sampling, list[_Asked]] = {}
        failed = []
        for work, task in ready:
            if work.error is not None:
                continue
            try:
                prompt = work.prompt(task)
            except QueryError as error:
                work.error = f"At {work.where(task)}: {error}"
                failed.append(work)
                continue
            asked = (work, task, prompt)
            groups.setdefault(task.sampling, []).append(asked)
        for sampling, asked_together in reversed(groups.items()):
            prompts = [
                prompt if self._independent else as_plain(prompt) for _, _, prompt in asked_together
            ]
            self.streams.send(prompts, sampling, asked_together)
        return failed


def _cut(work: QueryWork, task: Generate, answer: Answer) -> str:
    used = "this is the answer" if task is work.root else "outer generations read the cut text"
    limit = task.sampling.max_tokens
    remedy = f"Raise max_tokens (now {limit}) to get the whole answer."
    if answer.output_tokens < limit:
        remedy = "The model's context or the cache is full. Shorten the input."
    return f"{work.where(task)}: cut off after {answer.output_tokens} tokens; {used}. {remedy}"


@dataclass(slots=True, eq=False)
class _Stream(Generic[T]):
    answers: Answers
    open: dict[int, T]


class Streams(Generic[T]):
    """Open calls, polled in turn. In one engine, polling one call also advances the others."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._streams: deque[_Stream[T]] = deque()

    def __bool__(self) -> bool:
        return bool(self._streams)

    def send(self, prompts: Sequence[Prompt], sampling: Sampling, labels: Sequence[T]) -> None:
        """Send prompts in one call; each answer comes back with the prompt's label."""
        answers = self._backend.answer(prompts, sampling)
        # A new call goes first: a backend may not start until it is asked for an answer.
        self._streams.appendleft(_Stream(answers, dict(enumerate(labels))))

    def receive(self) -> list[tuple[T, Answer]]:
        """Wait for the next answer; several if a call ends without giving all its answers."""
        stream = self._streams.popleft()
        for index, answer in stream.answers:
            if index in stream.open:
                label = stream.open.pop(index)
                if stream.open:
                    self._streams.append(stream)
                else:
                    cancel(stream.answers)
                return [(label, answer)]
        return [(label, _NO_ANSWER) for label in stream.open.values()]

    def close(self) -> None:
        """Cancel all open calls."""
        while self._streams:
            cancel(self._streams.pop().answers)
