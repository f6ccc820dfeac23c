"""Batches of chunks whose contexts share prefixes, as an engine's steps make them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import strategies as st

from relquery.engine.executor import Chunk, Segment
from relquery.engine.requests.request import Draw

SLOTS = 400

Seen = tuple[int, int, int]
"""(token of the batch, slot of the key, position of the key)."""


def chunk_of(sequence: Sequence[int], start: int, request: int = 0) -> Chunk:
    """Computes the tokens of a slot sequence from `start` on; what is before is context."""
    slots = np.array(sequence, dtype=np.int64)
    context = (Segment(slots[:start]),) if start else ()
    tokens = slots[start:].astype(np.int32)
    return Chunk(request, tokens, start, context, slots[start:], Draw())


def span_chunk(shift: int, own: int, span: range, token: int) -> Chunk:
    """One new token after `own` tokens of its own and a span that stands at `shift`."""
    context = (Segment(np.arange(own), 0), Segment(np.array(span), 0, shift))
    write = np.array([900 + token])
    return Chunk(token, write.astype(np.int32), shift + len(span), context, write, Draw())


@st.composite
def batches(draw: st.DrawFn, max_chunks: int = 7, max_fresh: int = 20) -> list[Chunk]:
    """Each chunk's context begins with some of an earlier sequence's slots, or with none.

    The earlier sequence may be one that the same batch writes.
    """
    fresh = iter(np.random.default_rng(draw(st.integers(0, 99))).permutation(SLOTS).tolist())
    known: list[list[int]] = [[]]
    chunks: list[Chunk] = []
    for number in range(draw(st.integers(1, max_chunks))):
        base = draw(st.sampled_from(known))
        shared = base[: draw(st.integers(0, len(base)))]
        own = [next(fresh) for _ in range(draw(st.integers(0, max_fresh)))]
        context = shared + own
        tokens = draw(st.just(1) | st.integers(1, max_fresh))
        sequence = context + [next(fresh) for _ in range(tokens)]
        chunks.append(chunk_of(sequence, len(context), number))
        known.append(sequence)
    return chunks


def sequence_of(chunk: Chunk) -> list[int]:
    """Slots of the chunk's context and of the chunk, in order of position."""
    return [
        int(slot) for part in (*(s.slots for s in chunk.context), chunk.writes) for slot in part
    ]


def to_be_seen(chunks: Sequence[Chunk]) -> Iterator[Seen]:
    """What each token of a batch without shifted spans attends to."""
    token = 0
    for chunk in chunks:
        sequence = sequence_of(chunk)
        for position in range(chunk.position, chunk.position + len(chunk.tokens)):
            yield from ((token, slot, at) for at, slot in enumerate(sequence[: position + 1]))
            token += 1
