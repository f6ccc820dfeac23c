"""The engine: requests go in, steps run, finished requests come out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

from relquery.config import EngineConfig
from relquery.engine.blocks import BlockPool
from relquery.engine.cidra import plan_batches
from relquery.engine.clock import Clock
from relquery.engine.cost import LinearCost
from relquery.engine.executor import Chunk, Executor, Segment
from relquery.engine.forecast import Experience, forecast
from relquery.engine.hits import Held, StepHits
from relquery.engine.policies.sarathi import sarathi
from relquery.engine.queue import Queue
from relquery.engine.relquery import RelQuery
from relquery.engine.request import Draw, Request
from relquery.engine.schedule import Memo, Ordering, Plan, Policy, State, Work, filled, spread
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
        self.waiting = Queue()
        self.running: dict[Request, None] = {}
        self.relqueries: dict[int, RelQuery] = {}
        self._executor, self._policy, self._cost = executor, policy, cost
        self._hits = StepHits(self.pool, config)
        self._memo: Memo = None
        self._changed: set[int] = set()

    @property
    def capacity(self) -> int:
        """Tokens of prompt and answer that one request can have at most."""
        return self.pool.total * self.config.block_size

    def submit(self, request: Request, tenant: str = "", arrival: float | None = None) -> RelQuery:
        """Queue a request; gives the relQuery that it belongs to, by its group.

        tenant: who asks, and arrival: when, by default now; a relQuery has those of its first.

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
        if room <= 0:
            raise PromptTooLongError(
                prompt, self.capacity - lost, "the KV cache", "Raise cache_tokens."
            )
        request.max_tokens = min(request.max_tokens, room)
        request.arrival = self.clock.now() if arrival is None else arrival
        relquery = self.relqueries.get(request.group)
        if relquery is None:
            relquery = RelQuery(request.group, request.arrival, tenant)
            self.relqueries[request.group] = relquery
        relquery.size += 1
        relquery.output_limit = max(relquery.output_limit, request.max_tokens)
        self._wait(request, relquery)
        return relquery

    def step(self) -> list[Request]:
        """Run one batch; returns the requests that finished in it."""
        plan = self._schedule()
        chunks = self._prepare(plan)
        return self._apply(plan, self._execute(chunks))

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

        None where it is not known what steps cost. See relquery.engine.forecast.
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

    def _wait(self, request: Request, relquery: RelQuery, *, first: bool = False) -> None:
        for queue in (self.waiting, relquery.waiting):
            (queue.put_first if first else queue.append)(request)
        self._changed.add(relquery.id)

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
        self._changed = set()
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
        )

    def _prepare(self, plan: Plan) -> list[list[Chunk]]:
        """Move requests between queues, hold blocks, and describe the work to the executor."""
        for request in plan.preempt:
            self._preempt(request)
        # All hits are held before the first allocation, which might evict them.
        hits = StepHits(self.pool, self.config)
        held = [hits.hold(work) for work in plan.work]
        hits.copy()
        self._hits = hits
        return [self._chunks(work, blocks) for work, blocks in zip(plan.work, held, strict=True)]

    def _preempt(self, request: Request) -> None:
        relquery = self._leave_running(request)
        self._release(request)
        self._wait(request, relquery, first=True)

    def _chunks(self, work: Work, hits: Held) -> list[Chunk]:
        """The work as chunks: one for each piece that it touches."""
        request, size = work.request, self.config.block_size
        if hits:
            self._admit(request, hits)
        self._hold(request, len(request.pieces) - 1)
        if request.decoding and len(request.pieces) == 1:
            return [self._decode(request)]
        chunks = []
        for index, start, stop in spread(request, work.tokens):
            piece = request.pieces[index]
            if self.config.prefix_caching:
                for block in filled(request, index, start, stop, size):
                    self._publish(request, index, block)
            own = (Segment(piece.slots[:start], piece.start),) if start else ()
            ends = index == len(request.pieces) - 1 and stop == request.size(index)
            chunks.append(
                Chunk(
                    request=request.id,
                    tokens=request.tokens(index, start, stop),
                    position=piece.start + start,
                    context=(*self._before(request, index), *own),
                    writes=piece.slots[start:stop],
                    draw=_next_draw(request) if ends else None,
                )
            )
        return chunks

    def _decode(self, request: Request) -> Chunk:
        """The newest token of a prompt without spans: what most chunks are."""
        (piece,), size, last = request.pieces, self.config.block_size, request.length - 1
        if self.config.prefix_caching and (last + 1) % size == 0:
            self._publish(request, 0, last // size)
        return Chunk(
            request.id,
            request.tokens(0, last, last + 1),
            piece.start + last,
            (Segment(piece.slots[:last], piece.start),),
            piece.slots[last : last + 1],
            _next_draw(request),
        )

    def _publish(self, request: Request, index: int, number: int) -> None:
        """Let a block that this step fills be found by its key."""
        block, size = request.pieces[index].blocks[number], self.config.block_size
        self.pool.publish(request.key(index, number, size), block)
        self.pool.place[block] = request.place(index, number, size)

    def _before(self, request: Request, index: int) -> Iterator[Segment]:
        """The pieces before one that its tokens attend to."""
        piece = request.pieces[index]
        for other in request.pieces[piece.first : index]:
            if len(other.tokens):
                slots = other.slots[: len(other.tokens)]
                yield Segment(slots, other.start, other.origin - piece.origin)

    def _admit(self, request: Request, hits: Held) -> None:
        """Take a waiting request in, with the cached blocks of its prompt."""
        size = self.config.block_size
        relquery = self._leave_waiting(request)
        self.running[request] = relquery.running[request] = None
        if relquery.started is None:
            relquery.started = self.clock.now()
        for index, (piece, found) in enumerate(zip(request.pieces, hits, strict=True)):
            if found:
                blocks = [
                    self._filled_before(request, index, number) if block is None else block
                    for number, block in enumerate(found)
                ]
                piece.hold(blocks, size)
            piece.done = min(len(found) * size, request.size(index))
        for index in range(len(request.pieces)):
            self._hold(request, index)
        if request.cached is None:
            request.cached = request.computed
            self.experience.admit(request)

    def _filled_before(self, request: Request, index: int, number: int) -> int:
        """Hold a block that work before this one fills in the same step."""
        block = self.pool.lookup(request.key(index, number, self.config.block_size))
        assert block is not None, "the policy counted on a block that no work filled"
        self.pool.take(block)
        return block

    def _hold(self, request: Request, index: int) -> None:
        """Allocate what a piece lacks of blocks."""
        piece = request.pieces[index]
        missing = -(-request.size(index) // self.config.block_size) - len(piece.blocks)
        if missing > 0:
            fresh = self.pool.allocate(missing)
            assert fresh is not None, "the policy planned more blocks than there are"
            piece.hold(fresh, self.config.block_size)

    def _release(self, request: Request) -> None:
        self.pool.release(request.blocks)
        for piece in request.pieces:
            piece.let_go()

    def _execute(self, chunks: list[list[Chunk]]) -> list[int | None]:
        """Compute a step; per work the token drawn after its last chunk, if one is wanted."""
        try:
            self._relocate()
            drawn = iter(self._executor.execute(list(chain.from_iterable(chunks))))
            return [list(islice(drawn, len(of_work)))[-1] for of_work in chunks]
        except BaseException:
            # What this step was to write is not there: nobody may find it by its key. All that
            # runs computes again, so that the caller may go on after an interrupt.
            for request in list(self.running):
                for index, piece in enumerate(request.pieces):
                    if piece.done < request.size(index):
                        for block in piece.blocks[piece.done // self.config.block_size :]:
                            self.pool.withdraw(block)
            for request in list(reversed(self.running)):
                self._preempt(request)
            raise

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

    def _apply(self, plan: Plan, drawn: list[int | None]) -> list[Request]:
        finished = []
        for work, token in zip(plan.work, drawn, strict=True):
            request = work.request
            relquery = self.relqueries[request.group]
            self._changed.add(relquery.id)
            if not request.decoding:
                relquery.computed_prompts += work.tokens
            for index, _, stop in list(spread(request, work.tokens)):
                request.pieces[index].done = stop
            if token is None:
                continue
            if not request.output:
                relquery.prefilled = self.clock.now()
            before = len(request.output)
            ended = self._take(request, token)
            relquery.drawn_tokens += len(request.output) - before
            if ended:
                finished.append(request)
        return finished

    def _take(self, request: Request, token: int) -> bool:
        """Add a drawn token and all that the choices then leave no choice about."""
        while request.finish is None:
            if token in request.end:
                self._finish(request, Finish.STOP)
                break
            request.output.append(token)
            if request.chosen() or (request.stop is not None and request.stop(request.output)):
                self._finish(request, Finish.STOP)
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
        self.experience.answered(request)
        self._end(request, finish)

    def _end(self, request: Request, finish: Finish) -> None:
        self._release(request)
        request.finish, request.finished_at = finish, self.clock.now()
        relquery = self.relqueries[request.group]
        self._changed.add(relquery.id)
        if not relquery.open:
            relquery.ended = request.finished_at
            del self.relqueries[relquery.id]


def _next_draw(request: Request) -> Draw:
    draw = request.draw
    if draw.temperature == 0 and not request.choices:
        return draw
    # One stream per request: a draw depends on the seed and on how many tokens came before it,
    # not on what else is in the batch.
    seed = hash((draw.seed, len(request.output)))
    return replace(draw, seed=seed, allowed=request.allowed_next() or draw.allowed)
