"""The end of a request: labels and drafts as chunks of a step, results as tokens and an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from relquery.arrays import Slots
from relquery.engine.executor import Chunk, Drawn, DrawnTokens, Segment
from relquery.engine.requests.labels import Drafts, LabelTrie
from relquery.engine.requests.request import Draw, Matcher, Request
from relquery.prompt import Finish, TokenLogprob


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
    return Chunk(
        request=prompt.request,
        tokens=tokens,
        position=position,
        context=context,
        writes=scratch(len(stretch)),
        draw=draw,
        adapter=prompt.adapter,
    )


def _continued(chunk: Chunk, stretch: tuple[int, ...], scratch: Callable[[int], Slots]) -> Chunk:
    if not stretch:
        return chunk
    tokens = np.concatenate((chunk.tokens, np.array(stretch, dtype=np.int32)))
    writes = np.concatenate((chunk.writes, scratch(len(stretch))))
    return chunk._replace(tokens=tokens, writes=writes)


NO_NUMBERS = (
    "The model computes no finite numbers for this prompt. If dtype is 'float16', use 'bfloat16' "
    "or 'float32', whose range is greater; otherwise check the weights."
)
"""The error of a request whose logits are not finite."""


def failed(error: Exception) -> str:
    """The error of a request whose own text, grammar or sampling made relquery raise."""
    return (
        f"relquery failed on this prompt ({type(error).__name__}: {error}). Other prompts are not "
        "affected. Please report it, with the prompt and the model."
    )


def take_prompt(request: Request, drawn: Sequence[Drawn]) -> list[Drawn]:
    """Keep what a step's results tell of the prompt's tokens; returns those of the answer's."""
    told: list[Drawn] = []
    for each in drawn:
        told += each.tokens if isinstance(each, DrawnTokens) else [each]
    room = request.prompt_tokens - len(request.prompt_told)
    request.prompt_told += [logprob for logprob in told[:room] if isinstance(logprob, TokenLogprob)]
    return told[room:]


def take_in(request: Request, drawn: Sequence[Drawn]) -> Finish | None:
    """Add a step's results to a request's output; returns how it ended, or None if it goes on.

    drawn: the results of the draws of the request's chunks, in order.
    """
    if request.trie is not None:
        return _weigh(request, request.trie, drawn)
    if request.logprobs is not None:
        return _take_told(request, request.logprobs, drawn)
    tokens = cast("Sequence[int]", drawn)
    if request.draw.matcher is not None:
        return _match(request, request.draw.matcher, tokens[0])
    if request.drafts is not None and request.drafting:
        tokens = request.drafts.follow(tokens)
    for token in tokens:
        finish = _take(request, token)
        if finish is not None:  # ignore tokens after the end
            return finish
    return None


def _take_told(request: Request, kept: list[TokenLogprob], drawn: Sequence[Drawn]) -> Finish | None:
    """Add a drawn token; if it is part of the answer, its log-probabilities are kept."""
    (told,) = (drawn_one for drawn_one in drawn if isinstance(drawn_one, TokenLogprob))
    matcher, before = request.draw.matcher, len(request.output)
    finish = _take(request, told.token) if matcher is None else _match(request, matcher, told.token)
    if len(request.output) > before:
        kept.append(told)
    assert len(request.output) == len(kept), "a token was not drawn"
    return finish


def _weigh(request: Request, labels: LabelTrie, drawn: Sequence[Drawn]) -> Finish:
    """Make the most likely label the answer."""
    weighed = [drawn_one for drawn_one in drawn if isinstance(drawn_one, tuple)]
    request.scores = labels.log_probabilities(weighed)
    request.output = list(labels.greedy(weighed))
    return Finish.STOP


def _match(request: Request, matcher: Matcher, token: int) -> Finish | None:
    """Add a drawn token, and all further tokens that the grammar then forces."""
    if matcher.error is not None:
        request.error = matcher.error
        return Finish.ERROR
    if token in request.rules.end:
        return Finish.STOP
    tokens, room = matcher.take(token), request.max_tokens - len(request.output)
    request.output += tokens[:room]
    if matcher.is_over and len(tokens) <= room:
        return Finish.STOP
    return Finish.LENGTH if len(tokens) >= room else None


def _take(request: Request, token: int) -> Finish | None:
    """Add a drawn token, and all further tokens that the labels then force.

    Where log-probabilities are asked for, these are drawn too.
    """
    rules, output = request.rules, request.output
    while True:
        if token in rules.end:
            return Finish.STOP
        output.append(token)
        finish = rules.finish(output)
        if finish is not None:
            return finish
        if len(output) >= request.max_tokens:
            return Finish.LENGTH
        if not rules.labels or request.logprobs is not None:
            return None
        forced = rules.forced(output)
        if forced is None:
            return None
        token = forced
