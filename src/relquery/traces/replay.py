"""A trace sent to a server at its original times, and the latencies that the client sees."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from relquery.engine.executor import Clock
from relquery.engine.requests.relquery import Latency
from relquery.prompt import Answer
from relquery.traces.simulate import Outcome, ServedTrace
from relquery.traces.trace import TracedQuery

Ask = Callable[[TracedQuery, str, Callable[[], None]], Awaitable[Answer]]
"""Asks one prompt of a relQuery, and calls the function when the first token arrives.

A request that fails is an Answer with an error; an exception ends the replay."""


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """One request as its client saw it.

    sent, heard, ended: seconds since the replay began: when it was sent, when its first token
    came (None if none did), when its answer ended or it failed.
    """

    sent: float
    heard: float | None
    ended: float
    answer: Answer


class Replay:
    """Sends every relQuery's prompts at its arrival. Results so far are available at any time.

    queries: in order of arrival. concurrency: the most requests in flight at once; the others wait
    in the client. progress: called with the number of finished requests and the total.

    outcomes: of the relQueries that have ended, in that order. asked: per relQuery and row, None
    if it has not ended. held: requests that had to wait for `concurrency`. lag: the most
    seconds that any other request was sent late because the client was busy.
    """

    def __init__(
        self,
        queries: Sequence[TracedQuery],
        ask: Ask,
        clock: Clock,
        concurrency: int,
        progress: Callable[[int, int], None] = lambda ended, total: None,
    ) -> None:
        self.queries, self.concurrency = queries, concurrency
        self.outcomes: list[Outcome] = []
        self.asked: list[list[TimedAnswer | None]] = [[None] * len(query.rows) for query in queries]
        self.held = 0
        self.lag = 0.0
        self._ask, self._clock, self._progress = ask, clock, progress
        self._begin = 0.0
        self._open = [len(query.rows) for query in queries]

    async def run(self) -> None:
        """Replay the trace. Raises what `ask` raises; when cancelled, all requests are."""
        self._begin = self._clock.now()
        gate = asyncio.Semaphore(self.concurrency)
        try:
            async with asyncio.TaskGroup() as tasks:
                for number, query in enumerate(self.queries):
                    await self._until(query.arrival)
                    for row, prompt in enumerate(query.prompts):
                        tasks.create_task(self._request(number, row, prompt, gate))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    @property
    def ended(self) -> ServedTrace:
        """What has ended so far. The parts of a latency are those that a client can see.

        waiting: until the first token arrives, because servers do not say when a prompt is started.
        core: until the last request's first token. tail: until the last answer.
        """
        seconds = (outcome.query.arrival + outcome.latency.total for outcome in self.outcomes)
        return ServedTrace(tuple(self.outcomes), max(seconds, default=0.0))

    def _now(self) -> float:
        return self._clock.now() - self._begin

    async def _until(self, moment: float) -> None:
        while (left := moment - self._now()) > 0:
            await asyncio.sleep(left)

    async def _request(self, number: int, row: int, prompt: str, gate: asyncio.Semaphore) -> None:
        query, heard = self.queries[number], list[float]()
        is_held = gate.locked()
        self.held += is_held
        async with gate:
            sent = self._now()
            if not is_held:
                self.lag = max(self.lag, sent - query.arrival)
            answer = await self._ask(query, prompt, lambda: heard.append(self._now()))
        first = heard[0] if heard else None
        self.asked[number][row] = TimedAnswer(sent, first, self._now(), answer)
        self._open[number] -= 1
        if not self._open[number]:
            self.outcomes.append(_outcome(query, [one for one in self.asked[number] if one]))
        total = sum(len(query.rows) for query in self.queries)
        self._progress(total - sum(self._open), total)


def _outcome(query: TracedQuery, asked: Sequence[TimedAnswer]) -> Outcome:
    ended = max(one.ended for one in asked)
    heard = [one.heard for one in asked if one.heard is not None] or [ended]
    first, last = min(heard), max(heard)
    answers = [one.answer for one in asked]
    return Outcome(
        query,
        Latency(first - query.arrival, last - first, ended - last),
        sum(answer.prompt_tokens for answer in answers),
        sum(answer.cached_tokens for answer in answers),
        sum(answer.output_tokens for answer in answers),
    )
