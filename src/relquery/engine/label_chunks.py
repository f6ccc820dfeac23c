"""The labels of a prompt as chunks of the step that ends it, so that all are weighed at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relquery.engine.executor import Chunk, Segment, Slots
from relquery.engine.labels import LabelTrie
from relquery.engine.request import Draw


def label_chunks(prompt: Chunk, labels: LabelTrie, scratch: Callable[[int], Slots]) -> list[Chunk]:
    """A prompt's last chunk on to the first branch of the trie, and one for each further branch.

    What all labels begin with follows the prompt in its chunk. A further branch's chunk has the
    tokens since the branch above it. It attends to the prompt and to the chunks above as they stand
    in the same step. scratch: gives slots for so many tokens, which nobody reads after the step.
    """
    end = prompt.position + len(prompt.tokens)
    first = _continued(prompt, labels.branches[0].stretch, scratch)
    chunks = [first._replace(draw=Draw(allowed=labels.branches[0].allowed, weigh=True))]
    seen = [(*first.context, Segment(first.writes, first.position))]  # below each branch
    for branch in labels.branches[1:]:
        assert branch.above is not None, "a branch comes before the one above it"
        count = len(branch.stretch)
        position, writes = end + branch.depth - count, scratch(count)
        tokens = np.array(branch.stretch, dtype=np.int32)
        draw = Draw(allowed=branch.allowed, weigh=True)
        chunks.append(Chunk(prompt.request, tokens, position, seen[branch.above], writes, draw))
        seen.append((*seen[branch.above], Segment(writes, position)))
    return chunks


def _continued(chunk: Chunk, stretch: tuple[int, ...], scratch: Callable[[int], Slots]) -> Chunk:
    if not stretch:
        return chunk
    tokens = np.concatenate((chunk.tokens, np.array(stretch, dtype=np.int32)))
    writes = np.concatenate((chunk.writes, scratch(len(stretch))))
    if chunk.saves is None:
        return chunk._replace(tokens=tokens, writes=writes)
    saves = np.concatenate((chunk.saves, np.full(len(stretch), -1)))
    return chunk._replace(tokens=tokens, writes=writes, saves=saves)
