"""Turning the results of steps into a request's next tokens, and finally into its answer."""

from __future__ import annotations

from collections.abc import Sequence

from relquery.engine.executor import Drawn
from relquery.engine.request.labels import LabelTrie
from relquery.engine.request.matcher import Matcher
from relquery.engine.request.request import Request
from relquery.prompt import Finish, TokenLogprob

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


def take_in(request: Request, drawn: Sequence[Drawn]) -> Finish | None:
    """Add a step's results to a request's output; returns how it ended, or None if it goes on.

    drawn: the results of the draws of the request's chunks, in order.
    """
    if request.trie is not None:
        return _weigh(request, request.trie, drawn)
    if request.logprobs is not None:
        return _take_told(request, request.logprobs, drawn)
    tokens = [one for one in drawn if isinstance(one, int)]
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
    (told,) = (one for one in drawn if isinstance(one, TokenLogprob))
    matcher, before = request.draw.matcher, len(request.output)
    finish = _take(request, told.token) if matcher is None else _match(request, matcher, told.token)
    if len(request.output) > before:
        kept.append(told)
    assert len(request.output) == len(kept), "a token was not drawn"
    return finish


def _weigh(request: Request, labels: LabelTrie, drawn: Sequence[Drawn]) -> Finish:
    """Make the most likely label the answer."""
    weighed = [one for one in drawn if isinstance(one, tuple)]
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
    rules = request.rules
    while True:
        if token in rules.end:
            return Finish.STOP
        request.output.append(token)
        if not rules.is_free:
            finish = rules.finish(request.output)
            if finish is not None:
                return finish
        if len(request.output) >= request.max_tokens:
            return Finish.LENGTH
        is_skipped = rules.labels and request.logprobs is None
        forced = rules.forced(request.output) if is_skipped else None
        if forced is None:
            return None
        token = forced
