"""What policies with two kinds of steps share: a step of prompts, and a step of decodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from relquery.engine.request.relquery import RelQuery
from relquery.engine.request.request import Request
from relquery.engine.scheduling.draft import Draft
from relquery.engine.scheduling.plan import State


def prefill(draft: Draft, state: State, waiting: Iterable[Request]) -> None:
    """Plan whole prompts in the order given, until one does not fit.

    A prompt that exceeds the tokens of a step takes several, which come first.
    """
    for request in begun(state):
        if draft.tokens > 0 and request not in draft.preempt:
            draft.advance(request)
    for request in waiting:
        if not draft.admit(request, whole=True):
            return


def begin(
    draft: Draft,
    overdue: Iterable[RelQuery],
    running: Sequence[Request],
    starves: Callable[[int], bool],
) -> Draft:
    """Plan the first request of each relQuery that must wait no longer.

    running: in order of urgency. Where there is no room, the last of them lose theirs, but for
    those of relQueries that starve themselves: else short ones that come and starve would drive a
    long one out for ever.
    """
    for relquery in overdue:
        request = next(iter(relquery.waiting))
        if draft.admit(request):
            continue
        if draft.tokens <= 0:
            return draft
        victims = [each for each in reversed(running) if not starves(each.group)]
        enlarged = make_room(draft, request, victims)
        if enlarged is None:
            return draft
        draft = enlarged
    return draft


def make_room(draft: Draft, request: Request, victims: Iterable[Request]) -> Draft | None:
    """The draft with a request in the place of as many victims as it takes, the first of them.

    None if even all of them would not do, so that nobody is driven out in vain.
    """
    left = [victim for victim in victims if victim not in draft.preempt]
    last = draft.fork()
    for victim in left:
        last.evict(victim)
    if not left or not last.admit(request):
        return None
    found = draft.fork()
    for victim in left:
        found.evict(victim)
        if found.admit(request):
            break
    return found


def begun(state: State) -> list[Request]:
    """Running requests whose prompt is not computed yet."""
    return [request for request in state.running if request.computed < request.prompt_tokens]


def decode(draft: Draft, running: Iterable[Request]) -> None:
    """Plan the next token of all that runs, the most important first.

    Where blocks run out, the least important lose theirs and compute again later.
    """
    order = list(running)
    for request in order:
        if draft.tokens <= 0:
            return
        while request not in draft.preempt and not draft.advance(request):
            draft.evict(next(r for r in reversed(order) if r not in draft.preempt))
