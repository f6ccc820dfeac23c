"""The engine: requests go in, steps run, finished requests come out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from relquery.config import EngineConfig
from relquery.engine.cache.blocks import BlockPool
from relquery.engine.cache.cidra import plan_batches
from relquery.engine.clock import Clock
from relquery.engine.cost.linear import LinearCost
from relquery.engine.executor import Chunk, Drawn, Executor, seconds_of
from relquery.engine.request.queue import Queue
from relquery.engine.request.relquery import RelQuery
from relquery.engine.request.request import Request
from relquery.engine.scheduling.plan import Memo, Ordering, Plan, Policy, State, spread
from relquery.engine.scheduling.policies.sarathi import sarathi
from relquery.engine.step.allocation import Holdings
from relquery.engine.step.forecast import Experience, forecast
from relquery.engine.step.hits import StepHits
from relquery.engine.step.offload import Offload
from relquery.errors import PromptTooLongError, RequestError
from relquery.prompt import Finish


class Loop:
    """Continuous batching over one executor. Not thread-safe.

    `submit` queues a request, `step` runs one batch and returns what finished in it, `cancel`
    ends a request early, `run` steps until nothing is left. Each request ends exactly once.
    """

    def __init__(
        self,
        executor: Executor,
        config: EngineConfig,
        clock: Clock,
        policy: Policy = sarathi,
        cost: LinearCost | None = None,
    ) -> None:
        self.config, self.clock = config, clock
        self.experience = Experience()
        self.pool = BlockPool(config.cache_tokens // config.block_size)
        self.waiting = Queue(logs=True)
        self.running: dict[Request, None] = {}
        self.relqueries: dict[int, RelQuery] = {}
        self._executor, self._policy, self._cost = executor, policy, cost
        self.host = BlockPool(config.host_tokens // config.block_size)
        self._offload = Offload(self.host, config)
        self._holdings = Holdings(self.pool, config, self._offload)
        self._hits = StepHits(self.pool, config)
        self._memo: Memo = None
        self._changed: dict[RelQuery, None] = {}

    @property
    def capacity(self) -> int:
        """Tokens of prompt and answer that one request can have at most."""
        return self.pool.total * self.config.block_size

    def submit(self, request: Request, tenant: str = "", arrival: float | None = None) -> RelQuery:
        """Queue a request; gives the relQuery that it belongs to, by its group.

        tenant: who asks, and arrival: when, by default now; a relQuery has those of its first.

        Raises PromptTooLongError or RequestError if it can never be served.
        """
        request.max_tokens = min(request.max_tokens, self.room(request))
        request.arrival = self.clock.now() if arrival is None else arrival
        relquery = self.relqueries.get(request.group)
        if relquery is None:
            relquery = RelQuery(request.group, request.arrival, tenant)
            self.relqueries[request.group] = relquery
        relquery.size += 1
        relquery.output_limit = max(relquery.output_limit, request.max_tokens)
        self._wait(request, relquery)
        return relquery

    def room(self, request: Request) -> int:
        """Tokens that the answer to a request may have, whatever else is served.

        Raises PromptTooLongError or RequestError if it can never be served.
        """
        prompt, size = request.prompt_tokens, self.config.block_size
        if prompt == 0:
            raise RequestError("The prompt has no tokens; give it at least one character.")
        if len(request.pieces[-1].tokens) == 0:
            raise RequestError(
                "The prompt ends with an independent span, so that nothing attends to all of it. "
                "Let ordinary text follow."
            )
        # Each piece but the last may leave the rest of a block empty.
        lost = sum(-len(piece.tokens) % size for piece in request.pieces[:-1])
        room = self.capacity - lost - prompt
        if room <= 0 and not self._ends_at_once(request):
            raise self._too_long(request, max(self.capacity - lost, 1))
        return max(room, 1)

    def step(self) -> list[Request]:
        """Run one batch; returns the requests that finished in it."""
        plan = self._schedule()
        try:
            chunks = self._prepare(plan)
            begin = self.clock.now()
            drawn = self._execute(chunks)
        except BaseException:
            self._undo()
            raise
        finally:
            self._offload.release()
        if self._cost is not None:
            predicted = seconds_of(list(chain.from_iterable(chunks)), self._cost)
            self.experience.step(self.clock.now() - begin, predicted)
        return self._apply(plan, drawn)

    def run(self) -> Iterator[Request]:
        """Step until no request is left; yields requests as they finish."""
        while self.waiting or self.running:
            yield from self.step()

    def cancel(self, request: Request) -> bool:
        """End a request now; False if it had ended already."""
        if request.finish is not None:
            return False
        if request in self.running:
            self._leave_running(request)
        else:
            self._leave_waiting(request)
        self._end(request, Finish.CANCELLED)
        return True

    def forecast(self, number: int) -> float | None:
        """Seconds until the last answer of a relQuery as matters stand; 0 if it is not open.

        None where it is not known what steps cost. See relquery.engine.step.forecast.
        """
        if self._cost is None:
            return None
        if number not in self.relqueries:
            return 0.0
        state = self._state()
        _, self._memo = self._policy(state, self._memo)  # takes in what is new; the plan is not run
        known = self._memo.order(state) if isinstance(self._memo, Ordering) else None
        order = known or self.relqueries.values()
        return forecast(order, number, self.config, self._cost, self.experience)

    def _ends_at_once(self, request: Request) -> bool:
        """Whether one step may take a request whole, whatever the cache holds."""
        one_run = request.prefill_only and len(request.pieces) == 1
        return one_run and request.prompt_tokens <= (self.config.max_input or 0)

    def _too_long(self, request: Request, room: int) -> PromptTooLongError:
        tokens, longest = request.prompt_tokens, self.config.max_input or 0
        if request.prefill_only and longest + 1 > room:
            return PromptTooLongError(tokens, longest + 1, "a step", "Raise max_input or memory.")
        return PromptTooLongError(tokens, room, "the KV cache", "Raise cache_tokens.")

    def _wait(self, request: Request, relquery: RelQuery, *, first: bool = False) -> None:
        for queue in (self.waiting, relquery.waiting):
            (queue.put_first if first else queue.append)(request)
        self._changed[relquery] = None

    def _leave_waiting(self, request: Request) -> RelQuery:
        relquery = self.relqueries[request.group]
        self.waiting.remove(request)
        relquery.waiting.remove(request)
        return relquery

    def _leave_running(self, request: Request) -> RelQuery:
        relquery = self.relqueries[request.group]
        del self.running[request], relquery.running[request]
        return relquery

    def _schedule(self) -> Plan:
        plan, self._memo = self._policy(self._state(), self._memo)
        self._changed, self.waiting.changes = {}, []
        self.pool.changes, self.host.changes = [], []
        if not plan.work and not plan.preempt and (self.waiting or self.running):
            raise AssertionError("the policy planned nothing although requests are open")
        return plan

    def _state(self) -> State:
        return State(
            self.clock.now(),
            self.waiting,
            self.running,
            self.config,
            self.pool,
            self.relqueries,
            self._changed,
            self.waiting.changes,
            [*self.pool.changes, *self.host.changes],
            self.host,
        )

    def _prepare(self, plan: Plan) -> list[list[Chunk]]:
        """Move requests between queues, hold blocks, and describe the work to the executor."""
        for request in plan.preempt:
            self._preempt(request)
        self._holdings.begin_step()
        # All hits are held before the first allocation, which might evict them.
        hits = StepHits(self.pool, self.config)
        held = [hits.hold(work) for work in plan.work]
        hits.copy()
        self._offload.hold(plan.work)
        self._hits = hits
        chunks = []
        for work, blocks in zip(plan.work, held, strict=True):
            if blocks:
                self._admit(work.request)
                self._holdings.admit(work, blocks)
                if work.request.cached is None:
                    work.request.cached = work.request.computed
                    self.experience.admit(work.request)
            chunks.append(self._holdings.chunks(work))
        return chunks

    def _preempt(self, request: Request) -> None:
        relquery = self._leave_running(request)
        self._holdings.release(request)
        self._wait(request, relquery, first=True)

    def _admit(self, request: Request) -> None:
        """Move a waiting request to those that run."""
        relquery = self._leave_waiting(request)
        self.running[request] = relquery.running[request] = None
        if relquery.started is None:
            relquery.started = self.clock.now()

    def _execute(self, chunks: list[list[Chunk]]) -> list[list[Drawn]]:
        """Compute a step; per work all that its chunks' draws gave, in their order."""
        self._relocate()
        drawn = iter(self._executor.execute(list(chain.from_iterable(chunks))))
        by_work = [islice(drawn, len(of_work)) for of_work in chunks]
        return [[one for one in of_work if one is not None] for of_work in by_work]

    def _undo(self) -> None:
        """After a step that failed: what it was to write is not there, so nobody may find it by its
        key. All that runs computes again, so that the caller may go on after an interrupt."""
        self._offload.withdraw()
        for request in list(self.running):
            self._holdings.withdraw(request)
        for request in list(reversed(self.running)):
            self._preempt(request)

    def _relocate(self) -> None:
        """Move blocks to where the step's new requests need them."""
        hits = self._hits
        try:
            if hits.moves:
                self._executor.relocate(plan_batches(hits.moves), self.config.block_size)
        except BaseException:
            for move in hits.moves:
                self.pool.withdraw(move.target)
            raise
        finally:
            self.pool.release(hits.originals)
            hits.originals = []

    def _apply(self, plan: Plan, drawn: list[list[Drawn]]) -> list[Request]:
        finished = []
        for work, given in zip(plan.work, drawn, strict=True):
            request = work.request
            relquery = self.relqueries[request.group]
            self._changed[relquery] = None
            if not (request.output and request.decoding):
                relquery.computed_prompts += work.tokens
            for index, _, stop in list(spread(request, work.tokens)):
                request.pieces[index].done = stop
            if not given:
                continue
            if not request.output:
                relquery.prefilled = self.clock.now()
            if self._take_in(request, relquery, given):
                finished.append(request)
        return finished

    def _take_in(self, request: Request, relquery: RelQuery, given: list[Drawn]) -> bool:
        """Go on with what a request's draws gave; whether it has its answer."""
        if request.trie is not None:
            weighed = [one for one in given if isinstance(one, tuple)]
            request.scores = request.trie.log_probabilities(weighed)
            request.output = list(request.trie.greedy(weighed))
            relquery.computed_prompts += request.trie.tokens
            self._finish(request, Finish.STOP)
            return True
        tokens = [one for one in given if isinstance(one, int)]
        if request.drafting:
            assert request.drafts is not None
            relquery.computed_prompts += request.drafts.tokens
            tokens = request.drafts.follow(tokens)
        before = len(request.output)
        ended = any(self._take(request, token) for token in tokens)  # no further than the end
        relquery.drawn_tokens += len(request.output) - before
        return ended

    def _take(self, request: Request, token: int) -> bool:
        """Add a drawn token and all that the labels then leave no choice about."""
        while request.finish is None:
            if token in request.end:
                self._finish(request, Finish.STOP)
                break
            request.output.append(token)
            if request.chosen() or (request.stop is not None and request.stop(request.output)):
                self._finish(request, Finish.STOP)
            elif request.decided is not None and request.decided(request.output):
                self._finish(request, Finish.DECIDED)
            elif len(request.output) >= request.max_tokens:
                self._finish(request, Finish.LENGTH)
            forced = request.allowed_next()
            if len(forced) != 1:
                break
            token = forced[0]
        return request.finish is not None

    def _finish(self, request: Request, finish: Finish) -> None:
        """End a running request that has its answer."""
        relquery = self._leave_running(request)
        relquery.answered += 1
        relquery.answered_tokens += len(request.output)
        if not request.scored:  # whose answer no step was spent on
            self.experience.answered(request)
        self._end(request, finish)

    def _end(self, request: Request, finish: Finish) -> None:
        self._holdings.release(request)
        request.finish, request.finished_at = finish, self.clock.now()
        relquery = self.relqueries[request.group]
        self._changed[relquery] = None
        if not relquery.open:
            relquery.ended = request.finished_at
            del self.relqueries[relquery.id]
