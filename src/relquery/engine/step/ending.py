"""Labels and drafts as chunks of the step that ends a prompt, computed together with it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relquery.arrays import Slots
from relquery.engine.executor import Chunk, Segment
from relquery.engine.request.drafts import Drafts
from relquery.engine.request.labels import LabelTrie
from relquery.engine.request.request import Draw


def label_chunks(prompt: Chunk, labels: LabelTrie, scratch: Callable[[int], Slots]) -> list[Chunk]:
    """A prompt's last chunk, extended to the trie's first branch, and one per further branch.

    The tokens that all labels begin with follow the prompt in its chunk. A further branch's chunk
    has the tokens since the branch above it. It attends to the prompt and to the chunks above it in
    the same step. scratch: gives slots for a number of tokens, which are not read after the step.
    """

    def weigh(*allowed: int) -> Draw:
        return Draw(allowed=allowed, weigh=True, among_all=labels.joint)

    end = prompt.position + len(prompt.tokens)
    first = _continued(prompt, labels.branches[0].stretch, scratch)
    chunks = [first._replace(draw=weigh(*labels.branches[0].allowed))]
    seen = [(*first.context, Segment(first.writes, first.position))]  # below each branch
    for branch in labels.branches[1:]:
        assert branch.above is not None, "a branch comes before the one above it"
        position = end + branch.depth - len(branch.stretch)
        draw = weigh(*branch.allowed)
        chunk = _below(prompt, branch.stretch, position, seen[branch.above], draw, scratch)
        chunks.append(chunk._replace(inner=tuple(map(weigh, branch.inner))))
        seen.append((*chunk.context, Segment(chunk.writes, position)))
    return chunks


def draft_chunks(prompt: Chunk, drafts: Drafts, scratch: Callable[[int], Slots]) -> list[Chunk]:
    """A prompt's last chunk, and one chunk with its own draw for each token of its drafts.

    Each attends to the prompt and to the tokens before it in its draft, as label_chunks does.
    """
    end, chunks = prompt.position + len(prompt.tokens), [prompt]
    root = (*prompt.context, Segment(prompt.writes, prompt.position))
    seen: list[tuple[Segment, ...]] = []
    assert prompt.draw is not None, "the chunk does not end its prompt"
    for node in drafts.nodes:
        context, position = root if node.above is None else seen[node.above], end + node.depth
        chunk = _below(prompt, (node.token,), position, context, prompt.draw, scratch)
        chunks.append(chunk)
        seen.append((*context, Segment(chunk.writes, position)))
    return chunks


def _below(
    prompt: Chunk,
    stretch: tuple[int, ...],
    position: int,
    context: tuple[Segment, ...],
    draw: Draw,
    scratch: Callable[[int], Slots],
) -> Chunk:
    """A chunk after a prompt's last one; it is not read after the step."""
    tokens = np.array(stretch, dtype=np.int32)
    return Chunk(prompt.request, tokens, position, context, scratch(len(stretch)), draw)


def _continued(chunk: Chunk, stretch: tuple[int, ...], scratch: Callable[[int], Slots]) -> Chunk:
    if not stretch:
        return chunk
    tokens = np.concatenate((chunk.tokens, np.array(stretch, dtype=np.int32)))
    writes = np.concatenate((chunk.writes, scratch(len(stretch))))
    if chunk.saves is None:
        return chunk._replace(tokens=tokens, writes=writes)
    saves = np.concatenate((chunk.saves, np.full(len(stretch), -1)))
    return chunk._replace(tokens=tokens, writes=writes, saves=saves)
