"""Engines without a network: an executor that checks what it is asked to read, and helpers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from relquery.config import EngineConfig
from relquery.engine.clock import VirtualClock
from relquery.engine.executor import Chunk, SimulatedExecutor
from relquery.engine.loop import Engine
from relquery.engine.request import Request, Tokens

Answer = Callable[[int, int], int]
VOCABULARY = 5
UNWRITTEN = ("unwritten",)


def answer_of(request: int, position: int) -> int:
    """Depends on both; requests of equal id modulo 3 agree, so that outputs share blocks too."""
    return (request % 3 + position * position + position // 3) % VOCABULARY


def tokens_of(*ids: int) -> Tokens:
    return np.array(ids, dtype=np.int32)


def numbered(count: int, start: int = 0) -> Tokens:
    return np.arange(start, start + count, dtype=np.int32)


class BrokenError(Exception):
    """What a failing executor raises."""


class LedgerExecutor(SimulatedExecutor):
    """Knows what each slot holds, and fails if a chunk reads anything but its own prefix.

    A slot holds the whole token sequence that ends in it, which is what its keys and values
    depend on. A step that fails leaves rubbish in all slots that it was to write.
    """

    def __init__(self, config: EngineConfig, answer: Answer = answer_of) -> None:
        super().__init__(VirtualClock(), answer=answer)
        self.config = config
        self.requests: dict[int, Request] = {}
        self.holds: dict[int, tuple[Any, ...]] = {}
        self.steps: list[list[Chunk]] = []
        self.failure: BaseException | None = None

    def execute(self, chunks: Sequence[Chunk]) -> list[int | None]:
        self._check_limits(chunks)
        self.steps.append(list(chunks))
        if self.failure is not None:
            failure, self.failure = self.failure, None
            self.holds.update(dict.fromkeys(_all_writes(chunks), UNWRITTEN))
            raise failure
        for chunk in chunks:
            tokens = self._sequence(chunk)
            for place, slot in enumerate(chunk.writes.tolist(), chunk.position + 1):
                self.holds[slot] = tokens[:place]
        for chunk in chunks:
            self._check_reads(chunk)
        return super().execute(chunks)

    @property
    def computed(self) -> int:
        """Tokens of all steps."""
        return sum(len(chunk.tokens) for step in self.steps for chunk in step)

    def _sequence(self, chunk: Chunk) -> tuple[int, ...]:
        request = self.requests[chunk.request]
        return (*request.prompt.tolist(), *request.output)

    def _check_limits(self, chunks: Sequence[Chunk]) -> None:
        assert chunks, "a step has no work"
        assert len(chunks) <= self.config.max_num_seqs
        assert sum(len(chunk.tokens) for chunk in chunks) <= self.config.max_num_batched_tokens
        assert len({chunk.request for chunk in chunks}) == len(chunks), "a request runs twice"
        writes = _all_writes(chunks)
        assert len(set(writes)) == len(writes), "two tokens are written to one slot"
        assert all(0 <= slot < self.config.cache_tokens for slot in writes)

    def _check_reads(self, chunk: Chunk) -> None:
        tokens = self._sequence(chunk)
        stop = chunk.position + len(chunk.tokens)
        assert len(chunk.tokens) == len(chunk.writes) > 0
        assert stop <= len(tokens)
        assert tuple(chunk.tokens.tolist()) == tokens[chunk.position : stop]
        assert (chunk.draw is not None) == (stop == len(tokens)), "drawn before all is computed"
        slots = [slot for segment in chunk.context for slot in segment.slots.tolist()]
        assert len(slots) == chunk.position == chunk.context_tokens
        for place, slot in enumerate([*slots, *chunk.writes.tolist()], 1):
            assert self.holds.get(slot, UNWRITTEN) == tokens[:place], "a stale slot is read"


def _all_writes(chunks: Sequence[Chunk]) -> list[int]:
    return [slot for chunk in chunks for slot in chunk.writes.tolist()]


class Harness:
    """An engine on a ledger executor, and all requests that it was given."""

    def __init__(self, answer: Answer = answer_of, **limits: Any) -> None:
        settings = {"block_size": 4, "cache_tokens": 400, "max_num_batched_tokens": 64}
        self.config = EngineConfig(**{**settings, **limits})
        self.executor = LedgerExecutor(self.config, answer)
        self.engine = Engine(self.executor, self.config, self.executor.clock)
        self.finished: list[Request] = []

    def submit(self, prompt: Iterable[int], max_tokens: int = 3, **options: Any) -> Request:
        number = len(self.executor.requests)
        request = Request(number, np.array(list(prompt), dtype=np.int32), max_tokens, **options)
        self.engine.submit(request)
        self.executor.requests[number] = request
        return request

    def step(self) -> list[Request]:
        """One step, after which the pool and all who hold blocks must be in order."""
        finished = self.engine.step()
        self.finished += finished
        self.check()
        return finished

    def run(self) -> list[Request]:
        while self.engine.waiting or self.engine.running:
            self.step()
        return self.finished

    def check(self) -> None:
        engine, pool = self.engine, self.engine.pool
        pool.check()
        assert len(engine.running) <= self.config.max_num_seqs
        holders = [block for request in engine.running for block in request.blocks]
        assert pool.held == len(set(holders)), "a block is held by none that runs"
        for block in set(holders):
            assert pool.references(block) == holders.count(block)
        for request in self.executor.requests.values():
            is_open = request.finish is None
            places = (request in engine.running) + (request in engine.waiting)
            assert places == is_open, "a request is lost or kept after its end"
            assert request in engine.running or not request.blocks
            assert request not in engine.waiting or request.computed == 0


def expected_output(request: Request, answer: Answer = answer_of) -> list[int]:
    """The output of a request served alone, written without the engine."""
    output: list[int] = []
    while len(output) < request.max_tokens:
        token = answer(request.id, len(request.prompt) + len(output))
        if request.choices:
            following = {
                choice[len(output)]
                for choice in request.choices
                if list(choice[: len(output)]) == output and len(choice) > len(output)
            }
            if tuple(output) in request.choices:
                following |= request.end
            if not following:
                break
            ordered = sorted(following)
            token = ordered[token % len(ordered)]
        if token in request.end:
            break
        output.append(token)
        if request.stop is not None and request.stop(output):
            break
    return output
