"""vLLM's requests as the policies see them: the same State as in the engine and the simulator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import numpy as np
from vllm.v1.core.kv_cache_utils import get_block_hash

from relquery.config import EngineConfig
from relquery.engine.block_pool import BlockPool
from relquery.engine.requests.declared import NOTHING, Declared
from relquery.engine.requests.relquery import OpenRequests
from relquery.engine.requests.request import Request
from relquery.engine.scheduling.plan import Experience, Memo, Plan, Policy, State
from relquery.errors import ConfigError
from relquery.prompt import Finish


class Pool:
    """A view of vLLM's block pool; see engine.block_pool.BlockPool. Holds no block.

    Lookups are remembered until `begin`, because one step asks for the same blocks many times.

    blocks: vLLM's pool. groups: of the caches in which a block must be found. changes: the hashes
    of blocks that have entered or left the cache up to `begin`; whoever has read them clears them.
    """

    def __init__(self, blocks: Any, groups: Sequence[int]) -> None:
        self._blocks, self._groups = blocks, list(groups)
        self.total = int(blocks.num_gpu_blocks)
        self._found: dict[bytes, int | None] = {}
        self.changes: list[bytes] = []
        self._watch()

    def begin(self) -> None:
        """Begin a step. Forgets earlier lookups, since vLLM may have changed its pool."""
        self._found = {}
        if self._blocks.cached_block_hash_to_block is not self._cached:  # vLLM has reset its cache
            self.changes += map(get_block_hash, self._cached.keys)
            self._watch()

    def _watch(self) -> None:
        self._cached = _Watched(self._blocks.cached_block_hash_to_block, self.changes)
        self._blocks.cached_block_hash_to_block = self._cached

    @property
    def available(self) -> int:
        """Blocks that can be allocated."""
        return int(self._blocks.get_num_free_blocks())

    def lookup(self, key: bytes) -> int | None:
        """The block with a hash, or None."""
        if key not in self._found:
            blocks = self._blocks.get_cached_block(key, self._groups)
            self._found[key] = None if blocks is None else int(blocks[0].block_id)
        return self._found[key]

    def lookups(self, keys: Sequence[bytes]) -> list[int | None]:
        """What `lookup` gives for each; None for all after the first miss, which serve nobody."""
        blocks: list[int | None] = [None] * len(keys)
        for index, key in enumerate(keys):
            block = self.lookup(key)
            if block is None:
                break
            blocks[index] = block
        return blocks

    def unheld(self, blocks: Iterable[int]) -> set[int]:
        """Those of the blocks that no request holds."""
        own = self._blocks.blocks
        return {block for block in blocks if not own[block].ref_cnt}

    def references(self, block: int) -> int:
        """How many requests hold the block."""
        return int(self._blocks.blocks[block].ref_cnt)


class Held(Sequence[int]):
    """The blocks that a request holds, by number. blocks: vLLM's own list, which grows."""

    __slots__ = ("_blocks",)

    def __init__(self, blocks: Sequence[Any]) -> None:
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[int]:
        return (block.block_id for block in self._blocks)

    def __getitem__(self, at: Any) -> Any:
        stored = self._blocks[at]
        return [block.block_id for block in stored] if isinstance(at, slice) else stored.block_id


class _Watched:
    """vLLM's map of cached blocks, which here also notes what enters and leaves.

    keys: what is in it, as vLLM names it.
    """

    def __init__(self, own: Any, changes: list[bytes]) -> None:
        self._own, self._changes = own, changes
        self.keys: set[bytes] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __len__(self) -> int:
        return len(self._own)

    def insert(self, key: bytes, block: Any) -> None:
        """Add a block."""
        self._own.insert(key, block)
        self.keys.add(key)
        self._changes.append(get_block_hash(key))

    def pop(self, key: bytes, block_id: int) -> Any:
        """Remove a block; another one with the same key stays."""
        removed = self._own.pop(key, block_id)
        if self._own.get_one_block(key) is None:
            self.keys.discard(key)
            self._changes.append(get_block_hash(key))
        return removed


logger = logging.getLogger("vllm.relquery")  # vLLM shows what is below its own name

ID, ROWS, TENANT, DEADLINE = (
    "relquery",
    "relquery_rows",
    "relquery_tenant",
    "relquery_deadline",
)
"""What requests say in `vllm_xargs` of the relQuery that they belong to."""


@dataclass(slots=True)
class Mirrored:
    """A request. own: vLLM's. seen: tokens of its answer that are counted."""

    own: Any
    request: Request
    seen: int = 0
    held: Any = None
    """vLLM's list of its blocks, as it was seen last."""
    room: int = 0
    """Tokens that these blocks have room for."""

    def read_output(self) -> int:
        """Take over how many tokens are drawn or being drawn; returns how many are drawn.

        The output is a range of that length, since policies only count it, several times a step.
        """
        own, request = self.own, self.request
        drawn = len(own._output_token_ids)
        count = drawn + own.num_output_placeholders
        if count != len(request.output):
            request.output = cast("list[int]", range(count))
        return drawn


@dataclass(slots=True)
class Mirror:
    """All open requests, by vLLM's ids.

    held: gives vLLM's list of the blocks that a request holds.
    """

    policy: Policy
    limits: EngineConfig
    pool: Pool
    held: Callable[[str], Any]
    now: Callable[[], float]
    open: OpenRequests = field(default_factory=OpenRequests)
    experience: Experience = field(default_factory=Experience)
    by_id: dict[str, Mirrored] = field(default_factory=dict)
    _memo: Memo = None
    _of: dict[Request, Mirrored] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=count)

    def add(self, own: Any, arrival: float) -> None:
        """Queue a new request of vLLM. arrival: when it came."""
        said = _said(own)
        number = next(self._numbers)
        request = Request(
            number,
            # Policies only count the tokens: vLLM has computed the keys of the blocks.
            np.zeros(own.num_prompt_tokens, np.int32),
            max(1, own.max_tokens or 1),
            group=number,
            arrival=arrival,
        )
        piece = request.pieces[-1]
        piece.keys, piece.root = own.block_hashes, b""
        mirrored = self.by_id[own.request_id] = self._of[request] = Mirrored(own, request)
        mirrored.read_output()
        self.open.join(request, _tenant(own, said), _declared(said), self.now())

    def deadline(self, own: Any, arrival: float) -> float | None:
        """When the relQuery of a request that is not mirrored yet must have ended."""
        said = _said(own)
        declared = _declared(said)
        known = self.open.named.find(_tenant(own, said), declared.id, self.now())
        if known is not None:
            return known.deadline
        return None if declared.deadline is None else arrival + declared.deadline

    def end(self, request_id: str, is_answered: bool) -> None:
        """Note that a request of vLLM has ended."""
        mirrored = self.by_id.pop(request_id, None)
        if mirrored is None:
            return
        self._count(mirrored)
        mirrored.request.output = list(mirrored.own._output_token_ids)
        del self._of[mirrored.request]
        if is_answered:
            self.experience.answered(mirrored.request)
        finish = Finish.STOP if is_answered else Finish.CANCELLED
        self.open.end(mirrored.request, finish, self.now())

    def plan(self) -> Plan:
        """The policy's next step."""
        self.pool.begin()
        for request in self.open.running:
            self._refresh(self._of[request])
        state = State(
            self.now(),
            self.open.waiting,
            self.open.running,
            self.limits,
            cast(BlockPool, self.pool),
            self.open.relqueries,
            self.open.changed,
            self.open.waiting.changes,
            self.pool.changes,
            length_ratio=self.experience.usual_length,
            pace=self.experience.pace,
        )
        plan, self._memo = self.policy(state, self._memo)
        self.open.forget_changes()
        self.pool.changes.clear()
        return plan

    def own(self, request: Request) -> Any:
        """vLLM's request."""
        return self._of[request].own

    def scheduled(self, tokens: Mapping[str, int]) -> None:
        """Note what vLLM has scheduled. tokens: by id."""
        for request_id, computed in tokens.items():
            mirrored = self.by_id.get(request_id)
            if mirrored is None:
                continue
            request = mirrored.request
            if request not in self.open.running:
                self.open.start(request, self.now())
                if request.cached is None:
                    done = mirrored.own.num_computed_tokens - computed
                    request.cached = min(done, request.prompt_tokens)
                    self.experience.admit(request)
            relquery = self.open.of(request)
            if mirrored.own.num_output_tokens == 0:
                relquery.computed_prompts += computed
            self.open.changed[relquery] = None

    def put_back(self, request: Request) -> None:
        """Note that vLLM has preempted a request."""
        self.open.put_back(request)
        mirrored = self._of[request]
        mirrored.read_output()
        mirrored.held, mirrored.room = None, 0
        piece = request.pieces[-1]
        piece.done, piece.blocks = 0, []
        piece.slots = np.empty(0, np.int64)

    def late(self) -> list[tuple[str, str]]:
        """(id, why) of the requests whose deadline has passed."""
        late = self.open.late(self.now())
        return [(self._of[request].own.request_id, request.error or "") for request in late]

    def _refresh(self, mirrored: Mirrored) -> None:
        """Take over how far a running request is."""
        piece, own = mirrored.request.pieces[-1], mirrored.own
        piece.done = own.num_computed_tokens
        if mirrored.read_output() > mirrored.seen:
            self._count(mirrored)
        blocks = self.held(own.request_id)
        if blocks is not mirrored.held:
            mirrored.held = blocks
            piece.blocks = cast("list[int]", Held(blocks))
        room = len(blocks) * self.limits.block_size
        if room != mirrored.room:
            mirrored.room, piece.slots = room, cast(Any, range(room))

    def _count(self, mirrored: Mirrored) -> None:
        """Count the tokens of an answer that are new."""
        request, drawn = mirrored.request, len(mirrored.own._output_token_ids)
        if drawn <= mirrored.seen:
            return
        relquery = self.open.of(request)
        relquery.drawn_tokens += drawn - mirrored.seen
        if request.first_at is None:
            request.first_at = relquery.prefilled = self.now()
        mirrored.seen = drawn
        self.open.changed[relquery] = None


def _said(own: Any) -> Mapping[str, Any]:
    """What a request says of its relQuery."""
    sampling = own.sampling_params
    return (sampling.extra_args or {}) if sampling is not None else {}


def _tenant(own: Any, said: Mapping[str, Any]) -> str:
    return str(said.get(TENANT) or own.cache_salt or "")


def _declared(said: Mapping[str, Any]) -> Declared:
    """What a request declares of its relQuery. Invalid values are ignored and logged."""
    given, rows, deadline = said.get(ID), said.get(ROWS), said.get(DEADLINE)
    name = None if given is None or given == "" else str(given)
    if name is None and rows is None and deadline is None:
        return NOTHING
    try:
        return Declared(name, rows, deadline)
    except ConfigError as error:
        of = "A relQuery without a name" if name is None else f"relQuery {name}"
        logger.warning("%s: %s It is served as if nothing was said.", of, error)
        return Declared(name)
