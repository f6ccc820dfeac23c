"""The engine: requests go in, steps run, finished requests come out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from relquery.config import EngineConfig
from relquery.engine.blocks import BlockPool
from relquery.engine.clock import Clock
from relquery.engine.executor import Chunk, Executor, Segment, Slots
from relquery.engine.policies.fcfs import fcfs
from relquery.engine.request import Draw, Request
from relquery.engine.schedule import Memo, Plan, Policy, State, Work
from relquery.errors import PromptTooLongError, RequestError
from relquery.prompt import Finish


class Engine:
    """Continuous batching over one executor. Not thread-safe.

    `submit` queues a request, `step` runs one batch and returns what finished in it, `cancel`
    ends a request early, `run` steps until nothing is left. Each request ends exactly once.
    """

    def __init__(
        self, executor: Executor, config: EngineConfig, clock: Clock, policy: Policy = fcfs
    ) -> None:
        self.config, self.clock = config, clock
        self.pool = BlockPool(config.cache_tokens // config.block_size)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._executor, self._policy = executor, policy
        self._memo: Memo = None

    @property
    def capacity(self) -> int:
        """Tokens of prompt and answer that one request can have at most."""
        return self.pool.total * self.config.block_size

    def submit(self, request: Request) -> None:
        """Queue a request. Raises PromptTooLongError or RequestError if it can never be served."""
        if len(request.prompt) == 0:
            raise RequestError("The prompt has no tokens; give it at least one character.")
        if len(request.prompt) >= self.capacity:
            raise PromptTooLongError(
                len(request.prompt), self.capacity, "the KV cache", "Raise cache_tokens."
            )
        request.max_tokens = min(request.max_tokens, self.capacity - len(request.prompt))
        request.arrival = self.clock.now()
        self.waiting.append(request)

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
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self._end(request, Finish.CANCELLED)
        return True

    def _schedule(self) -> Plan:
        state = State(self.clock.now(), self.waiting, self.running, self.config, self.pool)
        plan, self._memo = self._policy(state, self._memo)
        if not plan.work and not plan.preempt and (self.waiting or self.running):
            raise AssertionError("the policy planned nothing although requests are open")
        return plan

    def _prepare(self, plan: Plan) -> list[Chunk]:
        """Move requests between queues, hold blocks, and describe the work to the executor."""
        for request in plan.preempt:
            self._preempt(request)
        # All hits are held before the first allocation, which might evict them.
        held = [self._hold_hits(work) for work in plan.work]
        return [self._chunk(work, hits) for work, hits in zip(plan.work, held, strict=True)]

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self.pool.release(request.blocks)
        request.blocks, request.computed = [], 0
        self.waiting.appendleft(request)

    def _hold_hits(self, work: Work) -> list[int | None]:
        """Hold a waiting request's hits; None for a block that is yet to be filled in this step."""
        size = self.config.block_size
        hits = [self.pool.lookup(work.request.key(index, size)) for index in range(work.hits)]
        for block in hits:
            if block is not None:
                self.pool.take(block)
        return hits

    def _chunk(self, work: Work, hits: list[int | None]) -> Chunk:
        request, size = work.request, self.config.block_size
        if not request.blocks:
            self._admit(request, hits)
        start, stop = request.computed, request.computed + work.tokens
        missing = -(-stop // size) - len(request.blocks)
        if missing > 0:
            fresh = self.pool.allocate(missing)
            assert fresh is not None, "the policy planned more blocks than there are"
            request.blocks += fresh
        if self.config.prefix_caching:
            for index in range(start // size, stop // size):
                self.pool.publish(request.key(index, size), request.blocks[index])
        slots = self._slots(request, stop)
        return Chunk(
            request=request.id,
            tokens=request.tokens(start, stop),
            position=start,
            context=(Segment(slots[:start]),) if start else (),
            writes=slots[start:],
            draw=_next_draw(request) if stop == request.length else None,
        )

    def _admit(self, request: Request, hits: list[int | None]) -> None:
        """Take a waiting request in, with the cached blocks of its prompt."""
        self.waiting.remove(request)
        self.running.append(request)
        for index, held in enumerate(hits):
            block = held
            if block is None:
                block = self.pool.lookup(request.key(index, self.config.block_size))
                assert block is not None, "the policy counted on a block that no work filled"
                self.pool.take(block)
            request.blocks.append(block)
        request.computed = len(request.blocks) * self.config.block_size
        missing = -(-request.length // self.config.block_size) - len(request.blocks)
        fresh = self.pool.allocate(missing)
        assert fresh is not None, "the policy admitted a request that does not fit"
        request.blocks += fresh
        if request.cached is None:
            request.cached = request.computed

    def _slots(self, request: Request, stop: int) -> Slots:
        size = self.config.block_size
        blocks = np.asarray(request.blocks[: -(-stop // size)], dtype=np.int64)
        return (blocks[:, None] * size + np.arange(size)).reshape(-1)[:stop]

    def _execute(self, chunks: list[Chunk]) -> list[int | None]:
        try:
            return self._executor.execute(chunks)
        except BaseException:
            # What this step was to write is not there: nobody may find it by its key. All that
            # runs computes again, so that the caller may go on after an interrupt.
            for request in list(self.running):
                for block in request.blocks[request.computed // self.config.block_size :]:
                    self.pool.withdraw(block)
            for request in list(reversed(self.running)):
                self._preempt(request)
            raise

    def _apply(self, plan: Plan, drawn: list[int | None]) -> list[Request]:
        finished = []
        for work, token in zip(plan.work, drawn, strict=True):
            work.request.computed += work.tokens
            if token is not None and self._take(work.request, token):
                self.running.remove(work.request)
                finished.append(work.request)
        return finished

    def _take(self, request: Request, token: int) -> bool:
        """Add a drawn token and all that the choices then leave no choice about."""
        while request.finish is None:
            if token in request.end:
                self._end(request, Finish.STOP)
                break
            request.output.append(token)
            if request.chosen() or (request.stop is not None and request.stop(request.output)):
                self._end(request, Finish.STOP)
            elif len(request.output) >= request.max_tokens:
                self._end(request, Finish.LENGTH)
            forced = request.allowed_next()
            if len(forced) != 1:
                break
            token = forced[0]
        return request.finish is not None

    def _end(self, request: Request, finish: Finish) -> None:
        self.pool.release(request.blocks)
        request.blocks = []
        request.finish, request.finished_at = finish, self.clock.now()


def _next_draw(request: Request) -> Draw:
    draw = request.draw
    if draw.temperature == 0 and not request.choices:
        return draw
    # One stream per request: a draw depends on the seed and on how many tokens came before it,
    # not on what else is in the batch.
    seed = hash((draw.seed, len(request.output)))
    return replace(draw, seed=seed, allowed=request.allowed_next() or draw.allowed)
