"""Prompts of one sampling, answered by batches that were submitted before or are now."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from relquery.backends.provider.batch_apis import BatchApi, Line, Standing, UndecidedError
from relquery.backends.provider.batch_jobs import BatchJob, BatchStore
from relquery.backends.provider.codec import RequestCodec
from relquery.backends.provider.dispatch import SharedState
from relquery.backends.provider.errors import reason_to_stop, refused
from relquery.backends.provider.limiter import RequestSize
from relquery.backends.provider.spending import Reservation
from relquery.backends.wires.errors import ProviderError
from relquery.backends.wires.messages import Messages, in_form, to_messages
from relquery.backends.wires.reply import Reply, no_answer
from relquery.backends.wires.wire import BatchResult, encoded
from relquery.errors import BudgetError, ModelError, PendingError, RequestError
from relquery.ledger.keys import settings_as_json
from relquery.prompt import Answer, Prompt

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
    """A prompt without an answer."""

    index: int
    custom: str
    """The id of its request."""
    earlier: str
    """The id that earlier versions gave it."""
    messages: Messages
    tries: int = 0
    """Tries that have failed."""


@dataclass(slots=True)
class BatchRun:
    """The prompts of one sampling on their way through batches."""

    api: BatchApi
    codec: RequestCodec
    """The maker of bodies and reader of replies."""
    store: BatchStore
    shared: SharedState
    deliver: Callable[[int, Answer], None]
    """A function that takes answers by index."""
    waits: bool
    """Whether to wait for batches, or to raise PendingError while they run."""
    keeps: bool
    """Whether answers are the same each time, so that a batch's results may be read again."""
    now: Callable[[], float] = time.time
    _open: dict[str, _Row] = field(default_factory=dict)
    _held: dict[str, float] = field(default_factory=dict)

    async def run(self, prompts: Sequence[Prompt]) -> None:
        """Deliver an answer for each prompt. Raises PendingError, ModelError and BudgetError."""
        server = self.codec.server
        server.dropped.update(self.store.refused(server.name))
        rows = list(self._rows(prompts))
        submitted_before = self.store.of(row.earlier for row in rows)
        for row in rows:
            if row.earlier in submitted_before:
                row.custom = row.earlier
        self._open = {row.custom: row for row in rows}
        polls = 0
        while self._open:
            await self._submit_new()
            jobs = list(dict.fromkeys(self.store.of(self._open).values()))
            standings = [await self._look(job) for job in jobs]
            if any(standing is not None and standing.state == "ended" for standing in standings):
                polls = 0
                continue
            if not self.waits and not any(self._is_fresh(job) for job in jobs):
                raise self._pending(jobs, standings)
            await asyncio.sleep(_POLLS[min(polls, len(_POLLS) - 1)])
            polls += 1

    def _rows(self, prompts: Sequence[Prompt]) -> Iterator[_Row]:
        counts = Counter[str]()
        for index, prompt in enumerate(prompts):
            try:
                messages = to_messages(prompt)
            except RequestError as error:
                self.deliver(index, no_answer(str(error), 0))
                continue
            texts = in_form(messages, alternates=False)
            digest = self._digest(self._settings, texts)
            # Equal prompts are drawn one by one where answers are not the same each time.
            number = counts[digest]
            earlier = self._digest(repr(self.codec.sampling), texts)
            yield _Row(index, f"{digest}-{number}", f"{earlier}-{number}", messages)
            counts[digest] += 1

    @property
    def _settings(self) -> str:
        """The sampling in the written form of a ledger's keys."""
        return settings_as_json(self.codec.sampling).decode()

    def _digest(self, settings: str, texts: Any) -> str:
        """The digest that tells a request from others: not how it is put, which may change."""
        said = json.dumps([self.codec.server.name, settings, texts])
        return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:48]

    # submitting

    async def _submit_new(self) -> None:
        """Submit the prompts that are in no batch."""
        known = self.store.of(self._open)
        new = [row for custom, row in self._open.items() if custom not in known]
        for some in self._parts(new):
            customs = [custom for custom, _ in some]
            with _lock:  # nobody sees the job before it is known to be submitted
                job = self.store.begin(self.codec.server.name, customs, self.now())
                if job is None:
                    continue
                _submitting.add(job.id)
            try:
                own = set(self.store.requests(job))  # another process may have been faster
                await self._submit(job, [line for line in some if line[0] in own])
            finally:
                with _lock:
                    _submitting.discard(job.id)

    def _parts(self, rows: Iterable[_Row]) -> Iterator[list[Line]]:
        """Requests in parts of the size that a batch may have."""
        part: list[Line] = []
        size = 0
        for row in rows:
            line = row.custom, self.codec.body(row.messages, self.codec.dropped)
            length = len(encoded(line)) + 99
            if part and (len(part) == self.api.most or size + length > self.api.most_bytes):
                yield part
                part, size = [], 0
            part.append(line)
            size += length
        if part:
            yield part

    async def _submit(self, job: BatchJob, lines: list[Line]) -> None:
        """Submit a batch. Raises ModelError where the provider does not take it."""
        self._hold(job, lines)
        is_prepared = False
        try:
            prepared = await self.api.prepare(job, lines)
            is_prepared = True
            remote = await self.api.submit(prepared)
        except ProviderError as error:
            if not (is_prepared and _may_be_taken(error)):
                self._drop(job)
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
            self.codec.reached = True

    def _hold(self, job: BatchJob, lines: list[Line]) -> None:
        """Set aside what the requests may cost at most. Raises BudgetError."""
        budget, held = self.shared.budget, dict[str, float]()
        try:
            for custom, body in lines:
                part = budget.hold(RequestSize.of(body, encoded(body)))
                if part is None:
                    raise BudgetError(
                        f"The budget of {budget.amount} has no room for a batch of "
                        f"{len(lines):,} requests with answers of up to {self.codec.limit:,} "
                        "tokens. Raise the budget, lower max_tokens, or ask about fewer rows."
                    )
                held[custom] = part
        except BaseException:
            self._held |= held
            self._drop(job)
            raise
        if budget.is_shared:  # whichever process has the results corrects what it counts
            self.store.hold(
                {name: part for name, part in held.items() if isinstance(part, Reservation)}
            )
        else:
            self._held |= held
        self.shared.counter.add(calls=len(lines))

    def _drop(self, job: BatchJob) -> None:
        """Free the requests of a batch that was not taken, and what was set aside for them."""
        customs = self.store.requests(job)
        held = {name: self._held.pop(name) for name in customs if name in self._held}
        for part in (held | self.store.take_holds(customs)).values():
            self.shared.budget.give_back(part)
        self.store.forget(job)

    def _held_for(self, custom: str) -> float | None:
        """What was set aside for a request; None where it was not, or another process has counted
        what it took."""
        return self._held.pop(custom, None if self.shared.budget.is_shared else 0.0)

    def _ended_by(self, error: ProviderError, before: str = "", after: str = "") -> ModelError:
        server = self.codec.server
        reason = reason_to_stop(error, self.codec.client.url, server.provider.key)
        return ModelError((reason or before + error.words) + after)

    # waiting

    async def _look(self, job: BatchJob) -> Standing | None:
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
            self._drop(known)
            raise ModelError(f"{self.api.title} refused the batch. {standing.why}")
        return standing

    async def _found(self, job: BatchJob) -> BatchJob | None:
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
            self._drop(job)
            return None
        self.store.sent(job, remote)
        return replace(job, remote=remote)

    def _is_fresh(self, job: BatchJob) -> bool:
        """Whether a moment tells if a batch was taken."""
        return job.remote is None and self.now() - job.begun < _GRACE_SECONDS + _POLLS[-1]

    def _unknown(self, job: BatchJob) -> ModelError:
        return ModelError(
            f"{self.api.title} does not know the batch {job.remote}, which was submitted with this "
            "ledger: give the key of the account that submitted it. To submit its requests "
            f"again, and pay again, run: relquery batches {self.store.path} --forget {job.remote}"
        )

    # results

    async def _collect(self, job: BatchJob, standing: Standing) -> None:
        assert job.remote is not None
        freed: list[str] = []
        results, are_all = await self._loaded(job.remote, standing.answered)
        # Without requests that failed here before and are in another batch now.
        left = dict.fromkeys(self.store.requests(job))
        self._held |= self.store.take_holds(custom for custom in left if custom in self._open)
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

    async def _loaded(self, remote: str, answered: int) -> tuple[list[BatchResult], bool]:
        """The results of a batch that has ended, and whether all answers are among them.

        answered: how many the provider counts. Raises ProviderError.
        """
        results = await self.api.results(remote)
        for pause in _POLLS[:_LOADS]:
            if _have(results, answered):
                break
            await asyncio.sleep(pause)  # the download was cut or garbled
            results = await self.api.results(remote)
        return results, _have(results, answered)

    def _lose(self, row: _Row) -> None:
        """An answer cannot be read. It is paid for, so its request is not submitted again."""
        if (held := self._held_for(row.custom)) is not None:
            self.shared.budget.settle(held, None)
        self.shared.counter.add(failures=1)
        error = ProviderError(
            "broken",
            f"{self.api.title} has an answer, but its results could not be read. Run the same "
            "query again later.",
        )
        self._end(row, self.codec.failed(error, row.tries + 1)[0])

    def _take(self, row: _Row, reply: Reply) -> None:
        outcome = self.codec.read(reply, row.tries + 1, self.codec.dropped)
        if (held := self._held_for(row.custom)) is not None:
            self.shared.budget.settle(held, reply.usage)
        self.shared.counter.used(reply.usage)
        self._end(row, outcome.answer)

    def _fail(self, row: _Row, error: ProviderError) -> None:
        """A request brought no reply. Its row has an error now, or is to be asked again."""
        if (held := self._held_for(row.custom)) is not None:
            self.shared.budget.refused(held)
        row.tries += 1
        server, named = self.codec.server, refused(error, self.codec.sampling)
        is_last = row.tries > server.config.max_retries
        if named - server.dropped:
            server.dropped.update(named)
            self.store.refuse(server.name, named)
        if is_last or not (named or error.is_passing):
            self.shared.counter.add(failures=1)
            self._end(row, self.codec.failed(error, row.tries)[0])

    def _end(self, row: _Row, answer: Answer) -> None:
        del self._open[row.custom]
        self.deliver(row.index, answer)

    def _pending(
        self, jobs: Sequence[BatchJob], standings: Sequence[Standing | None]
    ) -> PendingError:
        known = [standing for standing in standings if standing is not None]
        last = max((each.expires or 0.0 for each in known), default=0.0)
        hours = max(1, round((last - self.now()) / 3600)) if last else 24
        size, done = sum(job.size for job in jobs), sum(each.done for each in known)
        return PendingError(self.api.title, len(jobs), size, done, hours)


def _may_be_taken(error: ProviderError) -> bool:
    """Whether a batch may have been taken though no reply says so."""
    return error.kind != "connecting" and (error.status is None or error.status >= 500)


def _have(results: list[BatchResult], answered: int) -> bool:
    return len({each.custom for each in results if each.reply is not None}) >= answered
