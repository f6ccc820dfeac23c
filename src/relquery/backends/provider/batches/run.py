"""Prompts of one sampling, answered by batches that were submitted before or are now."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from threading import Lock
from typing import Any

from relquery.backends.provider.admission import SharedState
from relquery.backends.provider.batches.apis import BatchApi, Line, Standing, UndecidedError
from relquery.backends.provider.batches.jobs import Job, Store
from relquery.backends.provider.errors import reason_to_stop, refused
from relquery.backends.provider.exchange import Exchange
from relquery.backends.provider.failure_policy import TOO_LONG, backoff
from relquery.backends.provider.limiter import Need
from relquery.backends.wires.errors import ProviderError
from relquery.backends.wires.messages import Messages, in_form, to_messages
from relquery.backends.wires.reply import Reply, no_answer
from relquery.backends.wires.wire import Result
from relquery.errors import BudgetError, ModelError, PendingError, RequestError
from relquery.prompt import Answer, Prompt

Sleep = Callable[[float], Awaitable[None]]

_LOG = logging.getLogger(__name__)
_POLLS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0)
"""Seconds between looks at a batch; the last one from then on."""
_LOADS = 3
"""Times that results which lack answers are loaded again, after the first pauses of these."""
_GRACE_SECONDS = 60.0
"""After which a batch that was taken is in the provider's list."""
_SUBMIT_SECONDS = 900.0
"""After which a process that began to submit a batch has ended, or hangs."""
_KEPT_SECONDS = 28 * 86_400.0
"""For which providers know a batch and its results: 29 days at Anthropic, 30 at OpenAI."""

_GOES_ON = " What was submitted goes on; run the same query with the same ledger later."

# Of this process, as they are being submitted: nobody else has to look for them.
_submitting: set[str] = set()
_lock = Lock()


@dataclass(slots=True, eq=False)
class _Row:
    """A prompt without an answer. custom: the id of its request. tries: that have failed."""

    index: int
    custom: str
    messages: Messages
    tries: int = 0


@dataclass(slots=True)
class BatchRun:
    """exchange: makes bodies and reads replies. deliver: takes answers by index. waits: whether to
    wait for batches, or to raise PendingError while they run. keeps: whether answers are the same
    each time, so that a batch's results may be read again.
    """

    api: BatchApi
    exchange: Exchange
    store: Store
    shared: SharedState
    deliver: Callable[[int, Answer], None]
    waits: bool
    keeps: bool
    now: Callable[[], float] = time.time
    sleep: Sleep = asyncio.sleep
    chance: Random = field(default_factory=Random)
    _open: dict[str, _Row] = field(default_factory=dict)
    _held: dict[str, float] = field(default_factory=dict)

    async def run(self, prompts: Sequence[Prompt]) -> None:
        """Deliver an answer for each prompt. Raises PendingError, ModelError and BudgetError."""
        server = self.exchange.server
        server.dropped.update(self.store.refused(server.name))
        self._open = {row.custom: row for row in self._rows(prompts)}
        polls = 0
        while self._open:
            await self._submit_new()
            jobs = list(dict.fromkeys(self.store.of(list(self._open)).values()))
            standings = [await self._look(job) for job in jobs]
            if any(standing is not None and standing.state == "ended" for standing in standings):
                polls = 0
                continue
            if not self.waits and not any(self._is_fresh(job) for job in jobs):
                raise self._pending(jobs, standings)
            await self.sleep(_POLLS[min(polls, len(_POLLS) - 1)])
            polls += 1

    def _rows(self, prompts: Sequence[Prompt]) -> Iterator[_Row]:
        counts = Counter[str]()
        for index, prompt in enumerate(prompts):
            try:
                messages = to_messages(prompt)
            except RequestError as error:
                self.deliver(index, no_answer(str(error), 0))
                continue
            digest = self._digest(messages)
            # Equal prompts are drawn one by one where answers are not the same each time.
            yield _Row(index, f"{digest}-{counts[digest]}", messages)
            counts[digest] += 1

    def _digest(self, messages: Messages) -> str:
        """What tells a request from others: not how it is put, which may change."""
        texts = in_form(messages, alternates=False)
        said = json.dumps([self.exchange.server.name, repr(self.exchange.sampling), texts])
        return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:48]

    # submitting

    async def _submit_new(self) -> None:
        """Submit the prompts that are in no batch."""
        known = self.store.of(list(self._open))
        new = [row for custom, row in self._open.items() if custom not in known]
        for some in self._parts(new):
            job = self.store.begin(
                self.exchange.server.name, [custom for custom, _ in some], self.now()
            )
            if job is None:
                continue
            own = set(self.store.requests(job))  # another process may have been faster with some
            with _lock:
                _submitting.add(job.id)
            try:
                await self._submit(job, [line for line in some if line[0] in own])
            finally:
                with _lock:
                    _submitting.discard(job.id)

    def _parts(self, rows: Iterable[_Row]) -> Iterator[list[Line]]:
        """Requests in parts of the size that a batch may have."""
        part: list[Line] = []
        size = 0
        for row in rows:
            line = row.custom, self.exchange.body(row.messages, self.exchange.dropped)
            length = len(json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass")) + 99
            if part and (len(part) == self.api.most or size + length > self.api.most_bytes):
                yield part
                part, size = [], 0
            part.append(line)
            size += length
        if part:
            yield part

    async def _submit(self, job: Job, lines: list[Line]) -> None:
        """Submit a batch. Raises ModelError where the provider does not take it."""
        held, is_prepared = self._hold(job, lines), False
        try:
            prepared = await self.api.prepare(job, lines)
            is_prepared = True
            remote = await self._submitted(job, prepared)
        except ProviderError as error:
            if not (is_prepared and _may_be_taken(error)):
                self._give_back(held)
                self.store.forget(job)
                before = f"{self.api.title} does not take the batch. "
                raise self._ended_by(error, before) from error
            _LOG.warning(
                "%s Whether %s has taken the batch of %d requests is looked for, which takes a "
                "minute or two.",
                error.words,
                self.api.title,
                job.size,
            )
        else:
            self.store.sent(job, remote)
            self.exchange.reached = True
        self._held |= held

    async def _submitted(self, job: Job, prepared: Any) -> str:
        """The provider's id of a batch. A limit of requests is waited for: what it refuses was not
        taken. Raises ProviderError.
        """
        tries = 0
        while True:
            try:
                return await self.api.submit(job, prepared)
            except ProviderError as error:
                tries += 1
                most, told = self.exchange.server.config.max_retries, error.wait
                if not error.is_limit or tries > most or (told or 0.0) > TOO_LONG:
                    raise
                await self.sleep(backoff(tries, told, self.chance))

    def _hold(self, job: Job, lines: list[Line]) -> dict[str, float]:
        """What the requests may cost at most, set aside. Raises BudgetError."""
        held: dict[str, float] = {}
        try:
            for custom, body in lines:
                part = self.shared.budget.hold(Need.of(body))
                if part is None:
                    raise BudgetError(
                        f"The budget of {self.shared.budget.amount} has no room for a batch of "
                        f"{len(lines):,} requests with answers of up to {self.exchange.limit:,} "
                        "tokens. Raise the budget, lower max_tokens, or ask about fewer rows."
                    )
                held[custom] = part
        except BaseException:
            self._give_back(held)
            self.store.forget(job)
            raise
        self.shared.counter.sent_many(len(lines))
        return held

    def _give_back(self, held: dict[str, float]) -> None:
        for part in held.values():
            self.shared.budget.give_back(part)

    def _ended_by(self, error: ProviderError, before: str = "", after: str = "") -> ModelError:
        server = self.exchange.server
        reason = reason_to_stop(error, self.exchange.client.url, server.provider.key)
        return ModelError((reason or before + error.words) + after)

    # waiting

    async def _look(self, job: Job) -> Standing | None:
        """How far a batch is, after taking its results if it has ended; None if it is not known
        yet. Raises ModelError.
        """
        known = job if job.remote is not None else await self._found(job)
        if known is None or known.remote is None:
            return None
        try:
            standing = await self.api.standing(known.remote)
            if standing.state == "ended":
                await self._collect(known, standing)
        except ProviderError as error:
            if error.status == 404:
                if self.now() - known.begun < _KEPT_SECONDS:
                    raise self._unknown(known) from error
                self.store.forget(known)
                return Standing("ended", 0)
            if error.is_passing and self.waits:
                _LOG.info("%s", error.words)
                return None
            raise self._ended_by(error, after=_GOES_ON) from error
        if standing.state == "failed":
            self.store.forget(known)
            raise ModelError(f"{self.api.title} refused the batch. {standing.why}")
        return standing

    async def _found(self, job: Job) -> Job | None:
        """A batch whose id at the provider is not written down; None if that is not known yet, or
        if there is none, so that its requests are free again.
        """
        with _lock:
            is_under_way = job.id in _submitting
        age = self.now() - job.begun
        is_others = not job.is_ours and job.has_owner and age < _SUBMIT_SECONDS
        if is_under_way or is_others or age < _GRACE_SECONDS or not self.store.take_over(job):
            return None
        others = [each.remote for each in self.store.all() if each.remote is not None]
        try:
            remote = await self.api.find(job, self.store.requests(job), others)
        except UndecidedError:
            return None
        except ProviderError as error:
            raise self._ended_by(error, after=_GOES_ON) from error
        if remote is None:
            self.store.forget(job)
            return None
        self.store.sent(job, remote)
        return replace(job, remote=remote)

    def _is_fresh(self, job: Job) -> bool:
        """Whether a moment tells if a batch was taken."""
        return job.remote is None and self.now() - job.begun < _GRACE_SECONDS + _POLLS[-1]

    def _unknown(self, job: Job) -> ModelError:
        return ModelError(
            f"{self.api.title} does not know the batch {job.remote}, which was submitted with this "
            "ledger: give the key of the account that submitted it. To submit its requests "
            f"again, and pay again, run: relquery batches {self.store.path} --forget {job.remote}"
        )

    # results

    async def _collect(self, job: Job, standing: Standing) -> None:
        assert job.remote is not None
        freed: list[str] = []
        results, are_all = await self._loaded(job.remote, standing.answered)
        # Without requests that failed here before and are in another batch now.
        left = dict.fromkeys(self.store.requests(job))
        for result in results:
            row = self._open.get(str(result.custom))
            if row is None or left.pop(row.custom, 0) == 0:
                continue
            if result.reply is not None:
                self._take(row, result.reply)
            else:
                self._fail(row, result.error or ProviderError("odd", standing.why))
                freed.append(row.custom)
        why = standing.why or "The batch ended without an answer to this request."
        is_late = "expired" in why
        for custom in left:
            row = self._open.get(custom)
            if row is None:
                continue
            if are_all:
                self._fail(row, ProviderError("late" if is_late else "odd", why))
                freed.append(custom)
            else:
                self._lose(row)
        self.store.release(job, freed)
        if self.keeps:
            self.store.ended(job)
        else:
            self.store.forget(job)

    async def _loaded(self, remote: str, answered: int) -> tuple[list[Result], bool]:
        """The results of a batch that has ended, and whether all answers are among them.

        answered: how many the provider counts. Raises ProviderError.
        """
        results = await self.api.results(remote)
        for pause in _POLLS[:_LOADS]:
            if _have(results, answered):
                break
            await self.sleep(pause)  # the download was cut or garbled
            results = await self.api.results(remote)
        return results, _have(results, answered)

    def _lose(self, row: _Row) -> None:
        """An answer cannot be read. It is paid for, so its request is not submitted again."""
        self.shared.budget.settle(self._held.pop(row.custom, 0.0), None)
        self.shared.counter.failed()
        error = ProviderError(
            "broken",
            f"{self.api.title} has an answer, but its results could not be read. Run the same "
            "query again later.",
        )
        self._end(row, self.exchange.failed(error, row.tries + 1)[0])

    def _take(self, row: _Row, reply: Reply) -> None:
        found = self.exchange.read(reply, row.tries + 1, self.exchange.dropped)
        self.shared.budget.settle(self._held.pop(row.custom, 0.0), reply.usage)
        self.shared.counter.used(reply.usage)
        self._end(row, found.answer)

    def _fail(self, row: _Row, error: ProviderError) -> None:
        """A request brought no reply. Its row has an error now, or is to be asked again."""
        self.shared.budget.refused(self._held.pop(row.custom, 0.0))
        row.tries += 1
        server, named = self.exchange.server, refused(error, self.exchange.sampling)
        is_last = row.tries > server.config.max_retries
        if named - server.dropped:
            server.dropped.update(named)
            self.store.refuse(server.name, named)
        if is_last or not (named or error.is_passing):
            self.shared.counter.failed()
            self._end(row, self.exchange.failed(error, row.tries)[0])

    def _end(self, row: _Row, answer: Answer) -> None:
        del self._open[row.custom]
        self.deliver(row.index, answer)

    def _pending(self, jobs: Sequence[Job], standings: Sequence[Standing | None]) -> PendingError:
        known = [standing for standing in standings if standing is not None]
        last = max((each.expires or 0.0 for each in known), default=0.0)
        hours = max(1, round((last - self.now()) / 3600)) if last else 24
        size, done = sum(job.size for job in jobs), sum(each.done for each in known)
        return PendingError(self.api.title, len(jobs), size, done, hours)


def _may_be_taken(error: ProviderError) -> bool:
    """Whether a batch may have been taken though no reply says so."""
    return error.kind != "connecting" and (error.status is None or error.status >= 500)


def _have(results: list[Result], answered: int) -> bool:
    return len({each.custom for each in results if each.reply is not None}) >= answered
