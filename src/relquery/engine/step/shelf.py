"""States of whole pieces that are kept outside the cache, and come back before they are needed."""

from __future__ import annotations

from typing import Protocol

from relquery.arrays import Slots
from relquery.config import EngineConfig
from relquery.engine.block_pool import BlockPool, slots_of
from relquery.engine.requests.pieces import Keep
from relquery.engine.requests.request import Request, servable


class States(Protocol):
    """A store of the states of pieces: in host memory, on disk."""

    def where(self, key: bytes) -> str:
        """Where the states under a key are; "" if there are none. They may be damaged."""

    def save(self, key: bytes, slots: Slots) -> None:
        """Copy the states at these cache slots (tokens,), and keep them under a key."""

    def load(self, key: bytes, slots: Slots, first: int) -> bool:
        """Copy states, from the first-th token on, to cache slots (tokens,); False if there are
        none, or if they are damaged."""


class Shelf:
    """Takes the states of pieces that are to be kept, and brings them back.

    A piece is known by the key of its last block, which depends on all that its states do.
    states: None if nothing is kept outside the cache.
    """

    def __init__(self, pool: BlockPool, limits: EngineConfig, states: States | None) -> None:
        self._states = states if limits.prefix_caching else None
        self._pool, self._size = pool, limits.block_size

    @property
    def is_used(self) -> bool:
        """Whether anything is kept outside the cache."""
        return self._states is not None

    def bring(self, request: Request) -> None:
        """Load what the cache lacks of a request's pieces, as far as there is room for it.

        It is cached then, so that it may be evicted again before the request starts.
        """
        for index, piece in enumerate(request.pieces):
            if piece.keep:
                self._bring(request, index)

    def where(self, request: Request, index: int) -> str:
        """Where the states of a piece are, beside the cache; see States."""
        if self._states is None or not request.pieces[index].keep:
            return ""
        keys = request.keys(index, servable(request, index, self._size), self._size)
        return self._states.where(keys[-1]) if keys else ""

    def put(self, request: Request) -> None:
        """Keep the states of those pieces of a request that are computed and to be kept."""
        if self._states is None or request.alone:
            return
        for index, piece in enumerate(request.pieces):
            if piece.keep and piece.closed and piece.done >= len(piece.tokens):
                keys = request.keys(index, servable(request, index, self._size), self._size)
                blocks = piece.blocks[: len(keys)]
                if keys and len(blocks) == len(keys) and not self._states.where(keys[-1]):
                    self._states.save(keys[-1], slots_of(blocks, self._size)[: len(piece.tokens)])

    def _bring(self, request: Request, index: int) -> None:
        keys = request.keys(index, servable(request, index, self._size), self._size)
        blocks = self._pool.lookups(keys)
        if None not in blocks:
            return
        assert self._states is not None
        if not self._states.where(keys[-1]):
            return
        first = blocks.index(None)
        there = [block for block in blocks[:first] if block is not None]
        self._pool.take_all(there)  # they must not be evicted for the rest
        fresh = self._pool.allocate(len(keys) - first)
        if fresh is not None:
            start = first * self._size
            slots = slots_of(fresh, self._size)[: len(request.pieces[index].tokens) - start]
            if self._states.load(keys[-1], slots, start):
                self._pool.publish_all(keys[first:], fresh)
                self._pool.keep(fresh, Keep(request.pieces[index].keep))
            self._pool.release(fresh)
        self._pool.release(there)
