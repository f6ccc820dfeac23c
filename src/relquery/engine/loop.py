"""The engine: requests go in, steps run, finished requests come out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, islice

from relquery.config import EngineConfig
from relquery.engine.block_pool import BlockPool
from relquery.engine.cost import LinearCost
from relquery.engine.executor import NOT_FINITE, Chunk, Clock, Drawn, Executor, Failure, seconds_of
from relquery.engine.requests.declared import NOTHING, Commons, Declared
from relquery.engine.requests.relquery import OpenRequests, Queue, RelQuery
from relquery.engine.requests.request import Request, spread
from relquery.engine.scheduling.plan import (
    Experience,
    Memo,
    Plan,
    Policy,
    State,
    forecast,
)
from relquery.engine.scheduling.policies.steps import sarathi
from relquery.engine.step.admission import check_deadline, order_of, room_for
from relquery.engine.step.allocation import BlockAllocator, DecodeRun, can_begin
from relquery.engine.step.answer import NO_NUMBERS, failed, take_in, take_prompt
from relquery.engine.step.shelf import Shelf, States
from relquery.errors import RequestError
from relquery.interrupts import postponed
from relquery.prompt import Finish

_LOG = logging.getLogger(__name__)
ARRIVALS = 256
"""Requests that come or leave before the policy is told, however many come between two steps: else
the first step after them all would take long."""
Apply = Callable[[], list[Request]]
"""Applies what a step has computed; returns the requests that now have their answers."""


class Loop:
    """Continuous batching over one executor. Not thread-safe.

    `submit` queues a request, `step` runs one batch and returns what finished in it, `cancel`
    ends a request early, `run` steps until nothing is left. Each request ends exactly once.

    states: where the states of pieces that are to be kept go, beside the cache; None for nowhere.
    """

    def __init__(
        self,
        executor: Executor,
        config: EngineConfig,
        clock: Clock,
        policy: Policy = sarathi,
        cost: LinearCost | None = None,
        states: States | None = None,
    ) -> None:
        self.config, self.clock = config, clock
        self.experience = Experience()
        self.pool = BlockPool(config.cache_tokens // config.block_size, now=clock.now)
        self.commons = Commons(config.block_size, share_prefixes=config.share_prefixes)
        self._open = OpenRequests()
        self._executor, self._policy, self._cost = executor, policy, cost
        self.shelf = Shelf(self.pool, config, states)
        self._allocator = BlockAllocator(self.pool, config, self.shelf)
        self._memo: Memo = None
        self._decodes: DecodeRun | None = None
        self._finished: list[Request] = []

    @property
    def waiting(self) -> Queue:
        """Requests that have not started, or lost their blocks, in the order of arrival."""
        return self._open.waiting

    @property
    def running(self) -> Mapping[Request, None]:
        """Requests that hold blocks, in the order of admission."""
        return self._open.running

    @property
    def relqueries(self) -> Mapping[int, RelQuery]:
        """The open relQueries, by id."""
        return self._open.relqueries

    @property
    def capacity(self) -> int:
        """Tokens of prompt and answer that one request can have at most."""
        return self.pool.total * self.config.block_size

    def submit(
        self,
        request: Request,
        tenant: str = "",
        arrival: float | None = None,
        declared: Declared = NOTHING,
    ) -> RelQuery:
        """Queue a request; returns the relQuery that it belongs to, by its declared id or group.

        tenant: the client; its spans are its own, see Commons. arrival: by default now. A relQuery
        has those of its first request. declared: what the client says about the relQuery. If that
        is known by its id, the request gets its group; no two submits with other ids or none may
        have the same group.

        Raises PromptTooLongError or RequestError if it can never be served.
        """
        if request.max_tokens < 1:
            raise RequestError(f"max_tokens is {request.max_tokens}; it must be at least 1.")
        request.max_tokens = min(request.max_tokens, self.room(request))
        request.begin()
        now = self.clock.now()
        request.arrival = now if arrival is None else arrival
        self._decodes = None
        self.commons.claim(request, tenant)
        self.fetch(request)
        relquery = self._open.join(request, tenant, declared, now)
        if len(self.waiting.changes) >= ARRIVALS:
            with postponed():
                self._foresee()
                self._forget_changes()
        return relquery

    def decline(self, tenant: str, declared: Declared, count: int) -> None:
        """Note that requests of a declared relQuery came, and could not be submitted."""
        self._open.decline(tenant, declared, count, self.clock.now())

    def fetch(self, request: Request) -> None:
        """Load what the cache lacks of a request's kept states, from beside the cache."""
        if self.shelf.is_used:
            with postponed():
                self.shelf.bring(request)

    def room(self, request: Request) -> int:
        """Tokens that the answer to a request may have; see room_for."""
        return room_for(request, self.config, self.capacity)

    def step(self) -> list[Request]:
        """Run one batch; returns the requests that finished in it.

        Before it, those whose deadline has passed end; they are returned too.

        Signals interrupt it only while it computes. What an interrupted step has finished is
        returned by the next.
        """
        self._end_late()
        if self._open:
            self._step()
        finished, self._finished = self._finished, []
        return finished

    def run(self) -> Iterator[Request]:
        """Step until no request is left; yields requests as they finish."""
        while self._open or self._finished:
            yield from self.step()

    def cancel(self, request: Request) -> bool:
        """End a request now; False if it had ended already."""
        if request.finish is not None:
            return False
        with postponed():
            self._end(request, Finish.CANCELLED, self.clock.now())
        return True

    def fail(self, request: Request, error: Exception) -> None:
        """End an open request with what its own text, grammar or sampling raised."""
        _LOG.error("request %s failed", request.id, exc_info=error)
        request.error = failed(error)
        with postponed():
            self._end(request, Finish.ERROR, self.clock.now())

    def withdraw(self, request: Request) -> None:
        """Take back a request that was submitted and has not started."""
        self._decodes = None
        with postponed():
            self._open.withdraw(request, self.clock.now())

    def check_deadline(self, relquery: RelQuery) -> None:
        """Raise DeadlineError if a relQuery cannot have its last answer before its deadline.

        Nothing is checked where the cost of steps is not known.
        """
        if self._cost is not None and relquery.deadline is not None:
            check_deadline(relquery, self._foresee(), self._memo, self._cost, self.experience)

    def forecast(self, number: int) -> float | None:
        """Predicted seconds until the last answer of a relQuery; 0 if it is not open.

        None if the cost of steps is not known. See relquery.engine.scheduling.plan.
        """
        if self._cost is None:
            return None
        if number not in self.relqueries:
            return 0.0
        order = order_of(self._foresee(), self._memo)
        return forecast(order, number, self.config, self._cost, self.experience)

    def _foresee(self) -> State:
        """The state as the policy sees it, which knows it from then on; no plan is run."""
        state = self._state()
        _, self._memo = self._policy(state, self._memo)
        return state

    def _end_late(self) -> None:
        """End the open requests of relQueries whose deadline has passed."""
        if not self._open.dated:
            return
        now = self.clock.now()
        with postponed():
            for request in self._open.late(now):
                self._end(request, Finish.CANCELLED, now)
                self._finished.append(request)

    def _step(self) -> None:
        """Run one batch, and note what finished in it."""
        try:
            apply = self._decode_on() or self._compute_next()
        except BaseException:
            with postponed():
                self._undo()
            raise
        with postponed():
            self._finished += apply()

    def _compute_next(self) -> Apply:
        """Compute what the policy plans."""
        with postponed():
            plan = self._schedule()
            chunks = self._prepare(plan)
            self._decodes = self._begin_decodes(plan, chunks)
        begin = self.clock.now()
        drawn = self._execute(chunks)
        if self._cost is not None:
            seconds = self.clock.now() - begin
            predicted = seconds_of(list(chain.from_iterable(chunks)), self._cost)
            self.experience.step(seconds, predicted)
        return partial(self._apply, plan, drawn)

    def _begin_decodes(self, plan: Plan, chunks: list[list[Chunk]]) -> DecodeRun | None:
        """The run of decodes that a step begins, if it can be repeated."""
        if self.waiting or len(plan.work) < len(self.running) or not can_begin(plan, chunks):
            return None
        return DecodeRun(plan, list(chain.from_iterable(chunks)), self.relqueries)

    def _decode_on(self) -> Apply | None:
        """Compute the next step of a run of decodes; None if there is none, or it must be planned.

        Whatever else happens to a request ends the run.
        """
        run, self._decodes = self._decodes, None
        slots = None if run is None else run.advance(self._allocator)
        if run is None or slots is None:
            return None
        begin = self.clock.now()
        drawn = self._executor.follow(run.tokens, slots)
        if drawn is None:
            return None
        if self._cost is not None:
            seconds = self.clock.now() - begin
            predicted = self._cost.seconds(0, len(run.requests), run.context)
            self.experience.step(seconds, predicted)
        self._decodes = run
        return partial(self._apply_decodes, run, drawn)

    def _schedule(self) -> Plan:
        plan, self._memo = self._policy(self._state(), self._memo)
        self._forget_changes()
        if not plan.work and not plan.preempt and self._open:
            raise AssertionError("the policy planned nothing although requests are open")
        return plan

    def _forget_changes(self) -> None:
        """Note that the policy knows of them."""
        self._open.forget_changes()
        self.pool.changes = []

    def _state(self) -> State:
        return State(
            self.clock.now(),
            self.waiting,
            self.running,
            self.config,
            self.pool,
            self.relqueries,
            self._open.changed,
            self.waiting.changes,
            self.pool.changes,
            self.experience.usual_length,
            self.experience.pace,
        )

    def _prepare(self, plan: Plan) -> list[list[Chunk]]:
        """Move requests between queues, hold blocks, and describe the work to the executor."""
        now = self.clock.now()
        for request in plan.preempt:
            self._preempt(request)
        self._allocator.begin_step()
        # All hits are held before the first allocation, which might evict them.
        held = [self._allocator.take(work) if work.hits else () for work in plan.work]
        chunks = []
        for work, blocks in zip(plan.work, held, strict=True):
            if blocks:
                self._open.start(work.request, now)
                self._allocator.admit(work, blocks)
                if work.request.cached is None:
                    computed = work.request.computed  # of the prompt, and of what is forced
                    work.request.cached = min(computed, work.request.prompt_tokens)
                    self.experience.admit(work.request)
            chunks.append(self._allocator.chunks(work))
        return chunks

    def _preempt(self, request: Request) -> None:
        self._decodes = None
        self._open.put_back(request)
        self._allocator.release(request)

    def _execute(self, chunks: list[list[Chunk]]) -> list[list[Drawn]]:
        """Compute a step; returns the results of each work's draws, in order."""
        drawn = self._executor.execute(list(chain.from_iterable(chunks)))
        if len(drawn) == len(chunks):  # the usual case: one chunk each
            return [[] if drawn_one is None else [drawn_one] for drawn_one in drawn]
        rest = iter(drawn)
        by_work = [islice(rest, len(of_work)) for of_work in chunks]
        return [
            [drawn_one for drawn_one in of_work if drawn_one is not None] for of_work in by_work
        ]

    def _undo(self) -> None:
        """Clean up after a failed step: its blocks were not written, so their keys are withdrawn.
        All running requests are computed again, so the caller can continue after an interrupt."""
        for request in list(self.running):
            self._allocator.withdraw(request)
        for request in reversed(list(self.running)):
            self._preempt(request)

    def _apply(self, plan: Plan, drawn: list[list[Drawn]]) -> list[Request]:
        """Apply a step's results; returns the requests that now have their answers."""
        finished, now = [], self.clock.now()
        relqueries, changed = self._open.relqueries, self._open.changed
        for work, given in zip(plan.work, drawn, strict=True):
            request = work.request
            relquery = relqueries[request.group]
            changed[relquery] = None
            if work.tokens > 1 or not (request.output and request.decoding):
                relquery.computed_prompts += work.tokens
            if len(request.pieces) == 1:
                request.pieces[0].done += work.tokens
            else:
                for index, _, stop in list(spread(request, work.tokens)):
                    request.pieces[index].done = stop
            if given and self._take_in(request, relquery, given, now):
                finished.append(request)
        return finished

    def _apply_decodes(self, run: DecodeRun, drawn: list[Drawn | None]) -> list[Request]:
        """The same for a step of a run of decodes; drawn: see Executor.follow."""
        finished, now = [], self.clock.now()
        self._open.changed.update(dict.fromkeys(run.relqueries))
        for number in run.take_in(drawn):
            request, given = run.requests[number], drawn[number]
            assert given is not None
            if self._take_in(request, run.relqueries[number], [given], now):
                finished.append(request)
        return finished

    def _take_in(
        self, request: Request, relquery: RelQuery, given: list[Drawn], now: float
    ) -> bool:
        """Apply the results of a request's draws; returns whether it has its answer."""
        for each in given:
            if isinstance(each, Failure):
                self.fail(request, each.error)
                return True
        if NOT_FINITE in given:
            return self._lose(request, now)
        if request.prompt_logprobs is not None:
            given = take_prompt(request, given)
            if not given:
                return False
        before = len(request.output)
        if not before:
            relquery.computed_prompts += request.beside
        if request.first_at is None:
            relquery.prefilled = request.first_at = now
        try:
            finish = take_in(request, given)
        except Exception as error:
            self.fail(request, error)
            return True
        grown = len(request.output) - before
        if not request.scored:
            relquery.drawn_tokens += grown
        if finish is None:
            if grown > 1:  # the next step computes several tokens of it
                self._decodes = None
            return False
        if not request.scored:  # no step was spent on the answer of a scored request
            self.experience.answered(request)
        self._end(request, finish, now)
        return True

    def _lose(self, request: Request, now: float) -> bool:
        """Deal with a request whose logits are not finite numbers; returns whether it has ended.

        Its own tokens may be the cause, or states of others that it read. So nobody may read these
        states again, and it is computed once more from its tokens alone.
        """
        for piece in request.pieces:
            self.pool.forget(piece.keys)
        if request.alone:
            request.error = NO_NUMBERS
            self._end(request, Finish.ERROR, now)
            return True
        request.alone = True
        self._preempt(request)
        return False

    def _end(self, request: Request, finish: Finish, now: float) -> None:
        self._decodes = None
        self._open.end(request, finish, now)
        self._allocator.release(request)
