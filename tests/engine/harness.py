"""Engines without a network: an executor that checks what it is asked to read, and helpers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain as joined
from typing import Any

import numpy as np
import pytest

from relquery.arrays import Int64s, TokenIds
from relquery.config import EngineConfig
from relquery.engine.executor import SCRATCH, Chunk, Drawn, SimulatedExecutor, VirtualClock
from relquery.engine.loop import Loop
from relquery.engine.requests.declared import NOTHING, Declared
from relquery.engine.requests.labels import Drafts
from relquery.engine.requests.pieces import At, Chain, Keep, Placeholder
from relquery.engine.requests.relquery import Latency, RelQuery
from relquery.engine.requests.request import Request, Rules
from relquery.engine.scheduling.plan import Memo, Plan, Policy, State
from relquery.engine.scheduling.policies.steps import sarathi

Answer = Callable[[int, int], int]
Spec = tuple[Any, ...]  # token ids, independent spans as tuples of the same, At, and Hidden
Seen = tuple[int, tuple[Any, ...]]  # position in a chain, meaning
VOCABULARY = 5
UNWRITTEN = ("unwritten",)


@dataclass(frozen=True)
class Hidden:
    """A placeholder in a spec."""

    tokens: tuple[int, ...]


def answer_of(request: int, position: int) -> int:
    """Depends on both; requests of equal id modulo 3 agree, so that outputs share blocks too."""
    return (request % 3 + position * position + position // 3) % VOCABULARY


def tokens_of(*ids: int) -> TokenIds:
    return np.array(ids, dtype=np.int32)


def numbered(count: int, start: int = 0) -> TokenIds:
    return np.arange(start, start + count, dtype=np.int32)


@dataclass
class ToyMatcher:
    """A grammar that says for each place of an answer which tokens may stand there.

    It is over after the last place. fails_at: the place at which it cannot go on.
    """

    places: tuple[tuple[int, ...], ...]
    fails_at: int | None = None
    done: int = 0

    def begin(self, most: int) -> list[int]:
        return self._forced(min(most, len(self.places) - 1))

    def take(self, token: int) -> list[int]:
        assert token in self.places[self.done]
        self.done += 1
        return [token, *self._forced(len(self.places))]

    def allowed(self) -> Int64s:
        return np.array(self.places[self.done])

    @property
    def is_over(self) -> bool:
        return self.done == len(self.places)

    @property
    def error(self) -> str | None:
        return None if self.fails_at is None or self.done < self.fails_at else "It broke."

    def _forced(self, stop: int) -> list[int]:
        found: list[int] = []
        while self.done < stop and len(self.places[self.done]) == 1:
            found += self.places[self.done]
            self.done += 1
        return found


class BrokenError(Exception):
    """What a failing executor raises."""


class LedgerExecutor(SimulatedExecutor):
    """Knows what each slot holds, and fails if a chunk reads anything but what it should attend to.

    A slot holds the meaning of a token: all that its keys and values depend on (see `places`). A
    step that fails leaves rubbish in all slots that it was to write.
    """

    def __init__(self, config: EngineConfig, answer: Answer = answer_of) -> None:
        super().__init__(VirtualClock(), answer=answer)
        self.config = config
        self.requests: dict[int, Request] = {}
        self.prompts: dict[int, Spec] = {}
        self.holds: dict[int, tuple[Any, ...]] = {}
        self.at: dict[int, int] = {}  # position that a slot's key is rotated to
        self.steps: list[list[Chunk]] = []
        self.failure: BaseException | None = None

    def execute(self, chunks: Sequence[Chunk]) -> list[Drawn | None]:
        self._check_limits(chunks)
        self.holds = {slot: held for slot, held in self.holds.items() if slot < SCRATCH}
        self.steps.append(list(chunks))
        if self.failure is not None:
            failure, self.failure = self.failure, None
            self.holds.update(dict.fromkeys(_all_writes(chunks), UNWRITTEN))
            raise failure
        found = []
        for chunk in chunks:
            found.append(self._find(chunk))
            for i, (slot, place) in enumerate(zip(chunk.writes.tolist(), found[-1], strict=True)):
                self.holds[slot], self.at[slot] = place.meaning, chunk.position + i
        for chunk, computed in zip(chunks, found, strict=True):
            read = self._reads(chunk)
            assert read == computed[0].visible(), "a slot is read after another use"
        return super().execute(chunks)

    @property
    def computed(self) -> int:
        """Tokens of all steps."""
        return sum(len(chunk.tokens) for step in self.steps for chunk in step)

    def _find(self, chunk: Chunk) -> list[Place]:
        """The tokens that a chunk computes: those that attend to what it reads."""
        request = self.requests[chunk.request]
        spec, count = (*self.prompts[chunk.request], *request.output), len(chunk.tokens)
        assert count == len(chunk.writes) > 0
        for order in [places((*spec, *tail)) for tail in branches_of(request)]:
            for at, place in enumerate(order):
                run = order[at : at + count]
                same = [one.token for one in run] == chunk.tokens.tolist()
                own = all(one.chain is place.chain for one in run)
                draws = (chunk.draw is not None) == (at + count == len(order))
                here = place.position == chunk.position
                if same and own and draws and here and place.visible() == self._reads(chunk):
                    return run
        raise AssertionError("a chunk reads a stale slot, or not what it should attend to")

    def _reads(self, chunk: Chunk) -> set[Seen]:
        """What a chunk reads, by position in the chain of a token."""
        seen = []
        for segment in chunk.context:
            for i, slot in enumerate(segment.slots.tolist()):
                assert self.at.get(slot, segment.start + i) == segment.start + i, "keys are off"
                position = segment.shift + segment.start + i
                seen.append((position, self.holds.get(slot, UNWRITTEN)))
        assert len(set(seen)) == len(seen) == chunk.context_tokens, "a token is read twice"
        return set(seen)

    def _check_limits(self, chunks: Sequence[Chunk]) -> None:
        assert chunks, "a step has no work"
        assert len({chunk.request for chunk in chunks}) <= self.config.max_num_seqs
        ending = {chunk.request for chunk in chunks if chunk.draw}
        beside = sum(self.requests[number].beside for number in ending)
        computed = sum(len(chunk.tokens) for chunk in chunks) - beside
        assert computed <= max(self.config.max_num_batched_tokens, self.config.max_input or 0)
        writes = _all_writes(chunks)
        assert len(set(writes)) == len(writes), "two tokens are written to one slot"
        assert all(0 <= slot < self.config.cache_tokens or slot >= SCRATCH for slot in writes)


@dataclass(frozen=True)
class Place:
    """A token of a request, in document order.

    begin: where its chain begins in the request. position: in its chain. meaning: the chain up to
    it, spans in it as tuples: all that its states depend on. chain: (position, meaning) of all
    that the chain holds; the first `before` of them are what the token attends to besides itself.
    hidden: whether it is of a placeholder.
    """

    token: int
    begin: int
    position: int
    meaning: tuple[Any, ...]
    chain: list[Seen]
    before: int
    hidden: bool = False

    def visible(self) -> set[Seen]:
        return set(self.chain[: self.before])


def places(spec: Spec) -> list[Place]:
    """The tokens of a prompt, an independent span in it being a tuple."""
    return _places(spec, 0)[0]


def _places(spec: Spec, start: int) -> tuple[list[Place], list[Any], int]:
    """The tokens, the meaning of the whole chain, and the position after it.

    A span that begins its chain attends to what it would without being one, unless it hides some.
    """
    found: list[Place] = []
    chain: list[Seen] = []
    prefix: list[Any] = []
    end = 0
    for part in spec:
        if isinstance(part, At):
            prefix += [part] if part.position != end else []
            end = part.position
        elif isinstance(part, tuple):
            inner, whole, length = _places(part, start + end)
            seen = [place for place in inner if not place.hidden]
            chain += [(place.begin + place.position - start, place.meaning) for place in seen]
            if inner:
                prefix += [tuple(whole)] if prefix or len(seen) < len(inner) else whole
                end += length
            found += inner
        else:
            is_hidden = isinstance(part, Hidden)
            for token in part.tokens if isinstance(part, Hidden) else (part,):
                prefix.append(Hidden((token,)) if is_hidden else token)
                place = Place(token, start, end, tuple(prefix), chain, len(chain), is_hidden)
                found.append(place)
                chain.append((end, place.meaning))
                end += 1
    return found, prefix, end


def chain_of(spec: Spec) -> Chain:
    """The same as what the engine takes. Some chains are kept longer than others, and so are what
    some of their tokens end, which nothing but the cache may notice."""
    parts = joined.from_iterable(map(_parts_of, spec))
    return Chain(tuple(parts), keep=len(spec) % 3)


def _parts_of(part: int | At | Hidden | Spec) -> list[Any]:
    match part:
        case tuple():
            return [chain_of(part)]
        case Hidden(tokens):
            return [Placeholder(tokens_of(*tokens))]
        case At():
            return [part]
    keeps = [Keep(1 + part % 2, float(part))] if part % 3 == 1 else []
    return [tokens_of(part), *keeps]


def branches_of(request: Request) -> list[tuple[int, ...]]:
    """By branch of its labels, or by draw of its drafts, the tokens since the prompt; without
    either, one of none."""
    if request.trie is None:
        return [()] if request.drafts is None or request.output else drawn_after(request.drafts)
    paths: list[tuple[int, ...]] = []
    for branch in request.trie.branches:
        above = () if branch.above is None else paths[branch.above]
        paths.append((*above, *branch.stretch))
    return paths


def drawn_after(drafts: Drafts) -> list[tuple[int, ...]]:
    """The tokens since the prompt behind which a token is drawn, in their order."""
    paths: list[tuple[int, ...]] = []
    for node in drafts.nodes:
        paths.append((*(() if node.above is None else paths[node.above]), node.token))
    return [(), *paths]


def _all_writes(chunks: Sequence[Chunk]) -> list[int]:
    return [slot for chunk in chunks for slot in chunk.writes.tolist()]


_RULES = [each.name for each in fields(Rules)]


class Harness:
    """An engine on a ledger executor, and all requests that it was given."""

    def __init__(self, answer: Answer = answer_of, policy: Policy = sarathi, **limits: Any) -> None:
        settings = {"block_size": 4, "cache_tokens": 400, "max_num_batched_tokens": 64}
        self.config = EngineConfig(**{**settings, **limits})
        self.executor = LedgerExecutor(self.config, answer)
        self.planned = 0  # steps that the policy was asked for

        def planning(state: State, memo: Memo) -> tuple[Plan, Memo]:
            self.planned += 1
            return policy(state, memo)

        self.engine = Loop(self.executor, self.config, self.executor.clock, planning)
        self.finished: list[Request] = []

    def submit(
        self,
        prompt: Iterable[Any],
        max_tokens: int = 3,
        tenant: str = "",
        declared: Declared = NOTHING,
        **options: Any,
    ) -> Request:
        """prompt: token ids, and independent spans as tuples of the same."""
        number = len(self.executor.requests)
        kept = tuple, At, Hidden
        spec = tuple(part if isinstance(part, kept) else int(part) for part in prompt)
        rules = Rules(**{name: options.pop(name) for name in _RULES if name in options})
        request = Request(number, chain_of(spec), max_tokens, rules=rules, **options)
        self.engine.submit(request, tenant, declared=declared)
        self.executor.requests[number], self.executor.prompts[number] = request, spec
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

    def ask(self, prompt: Iterable[Any], max_tokens: int = 3, **options: Any) -> Request:
        """Submit a request, and serve it and all others."""
        request = self.submit(prompt, max_tokens, **options)
        self.run()
        return request

    def submit_rows(
        self, group: int, rows: int, prompt: int, max_tokens: int = 3, **options: Any
    ) -> RelQuery:
        """A relQuery whose prompts, of so many tokens, have nothing in common with others."""
        for _ in range(rows):
            tokens = numbered(prompt, start=100 * len(self.executor.requests))
            request = self.submit(tokens, max_tokens, group=group, **options)
        return self.engine.relqueries[request.group]

    def fail(self, error: BaseException | None = None) -> None:
        """A step that fails, after which all must be in order."""
        self.executor.failure = error or BrokenError()
        with pytest.raises(type(self.executor.failure)):
            self.engine.step()
        self.check()

    @property
    def lengths(self) -> list[list[int]]:
        """Tokens of each chunk of each step."""
        return [[len(chunk.tokens) for chunk in step] for step in self.executor.steps]

    def check(self) -> None:
        engine, pool = self.engine, self.engine.pool
        pool.check()
        assert len(engine.running) <= self.config.max_num_seqs
        holders = [block for request in engine.running for block in request.blocks]
        assert pool.held == len(set(holders)), "a block is held by none that runs"
        for block in set(holders):
            assert pool.references(block) == holders.count(block)
        self.check_relqueries()
        for request in self.executor.requests.values():
            is_open = request.finish is None
            places = (request in engine.running) + (request in engine.waiting)
            assert places == is_open, "a request is lost or kept after its end"
            assert request in engine.running or not request.blocks
            assert request not in engine.waiting or request.computed == 0

    def check_relqueries(self) -> None:
        """The relQueries are those of the open requests, and hold them in the same order."""
        engine = self.engine
        groups = {request.group for request in [*engine.waiting, *engine.running]}
        assert set(engine.relqueries) == groups
        for group, relquery in engine.relqueries.items():
            assert relquery.id == group
            assert list(relquery.waiting) == [r for r in engine.waiting if r.group == group]
            assert list(relquery.running) == [r for r in engine.running if r.group == group]


def latency_of(relquery: RelQuery) -> Latency:
    """Of one that has ended."""
    assert relquery.latency is not None
    return relquery.latency


def spied(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """What a function or a method has returned; grows at each call."""
    found: list[Any] = []
    original = getattr(owner, name)

    def spying(*args: Any, **options: Any) -> Any:
        found.append(original(*args, **options))
        return found[-1]

    monkeypatch.setattr(owner, name, spying)
    return found


Test = Callable[..., None]


def for_each(names: str, cases: Iterable[Any]) -> Callable[[Test], Test]:
    """One test that tries all these cases of an argument, or of several, and says which failed."""
    known, keys = [*cases], names.split(", ")

    def of(test: Test) -> Test:
        def tried(**given: Any) -> None:
            for case in known:
                values = zip(keys, case if len(keys) > 1 else (case,), strict=True)
                try:
                    test(**given, **dict(values))
                except BaseException as error:
                    error.add_note(f"{names}: {case!r}")
                    raise

        tried.__name__, tried.__doc__ = test.__name__, test.__doc__
        return tried

    return of


def assert_answered(*requests: Request) -> None:
    for request in requests:
        assert request.finish is not None
        assert request.output == expected_output(request)


def expected_output(request: Request, answer: Answer = answer_of) -> list[int]:
    """The output of a request served alone, written without the engine."""
    output: list[int] = []
    matcher = request.draw.matcher
    grammar = matcher.places if isinstance(matcher, ToyMatcher) else None
    while len(output) < request.max_tokens:
        token = answer(request.id, request.prompt_tokens + len(output))
        if request.rules.labels:
            following = {
                choice[len(output)]
                for choice in request.rules.labels
                if list(choice[: len(output)]) == output and len(choice) > len(output)
            }
            if tuple(output) in request.rules.labels:
                following |= request.rules.end
            if not following:
                break
            ordered = sorted(following)
            token = ordered[token % len(ordered)]
        if grammar is not None:
            token = grammar[len(output)][token % len(grammar[len(output)])]
        if token in request.rules.end:
            break
        output.append(token)
        if grammar is not None and len(output) == len(grammar):
            break
        if request.rules.stop is not None and request.rules.stop(output):
            break
    return output
