"""Steps that policies share: of prompts, of decodes, and of both in the order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from relquery.engine.requests.request import Request
from relquery.engine.scheduling.plan import Memo, Plan, State
from relquery.engine.scheduling.reuse import Draft


def prefill(draft: Draft, state: State, waiting: Iterable[Request]) -> None:
    """Plan whole prompts in the given order, until one does not fit.

    A prompt that exceeds the tokens of a step takes several steps, and these come first.
    """
    for request in begun(state):
        if draft.tokens > 0 and request not in draft.preempt:
            draft.advance(request)
    for request in waiting:
        if not draft.admit(request, whole=True):
            return


def begin(
    draft: Draft,
    overdue: Iterable[tuple[Request, bool]],
    running: Sequence[Request],
    is_urgent: Callable[[int], bool],
) -> Draft:
    """Plan the requests that must not wait any longer. overdue: see Priorities.

    running: in order of urgency. If there is no room, the last of them are preempted, except those
    of relQueries that are urgent themselves. Otherwise newly starving short relQueries would keep
    a long one out for ever. Nor are blocks taken that those still need: they would be preempted
    later in the step, and two that starve could take each other's place for ever.
    """
    kept = sum(draft.missing(each) for each in running if is_urgent(each.group))
    draft.blocks -= kept
    draft = _begin(draft, overdue, running, is_urgent)
    draft.blocks += kept
    return draft


def _begin(
    draft: Draft,
    overdue: Iterable[tuple[Request, bool]],
    running: Sequence[Request],
    is_urgent: Callable[[int], bool],
) -> Draft:
    for request, may_preempt in overdue:
        if draft.admit(request):
            continue
        if draft.tokens <= 0:
            return draft
        if not may_preempt:
            continue
        victims = [each for each in reversed(running) if not is_urgent(each.group)]
        enlarged = make_room(draft, request, victims)
        if enlarged is None:
            return draft
        draft = enlarged
    return draft


def make_room(draft: Draft, request: Request, victims: Iterable[Request]) -> Draft | None:
    """The draft with a request in place of as many victims as necessary, the first ones first.

    None if evicting all of them would not make enough room, so nobody is evicted for nothing.
    """
    left = [victim for victim in victims if victim not in draft.preempt]
    last = draft.fork()
    for victim in left:
        last.evict(victim)
    if not left or not last.admit(request):
        return None
    fork = draft.fork()
    for victim in left:
        fork.evict(victim)
        if fork.admit(request):
            break
    return fork


def begun(state: State) -> list[Request]:
    """Running requests whose prompt is not computed yet."""
    return [request for request in state.running if request.computed < request.prompt_tokens]


def decode(draft: Draft, running: Iterable[Request]) -> None:
    """Plan the next token of all running requests, the most important first.

    If blocks run out, the least important requests lose theirs and are recomputed later.
    """
    order = list(running)
    for request in order:
        if draft.tokens <= 0:
            return
        while request not in draft.preempt and not draft.advance(request):
            draft.evict(next(r for r in reversed(order) if r not in draft.preempt))


def fcfs(state: State, memo: Memo) -> tuple[Plan, Memo]:
    """Compute whole prompts in order of arrival while they fit; else decode running requests."""
    draft = Draft(state)
    prefill(draft, state, state.waiting)
    if not draft.work:
        decode(draft, state.running)
    return draft.plan(), memo


def sarathi(state: State, memo: Memo) -> tuple[Plan, Memo]:
    """First come, first served, chunks of prompts mixed with decodes (Agrawal et al. 2024).

    Advance all running requests, then admit waiting ones, each in order of arrival.

    Every running request decodes one token or computes the next chunk of its prompt; the rest of
    the token budget goes to waiting requests, the last of which may be cut into a chunk. When
    blocks run out, the request that was admitted last is preempted and computes again later.
    """
    draft = Draft(state)
    running = list(state.running)
    for request in running:
        if draft.tokens <= 0:
            break
        while request not in draft.preempt and not draft.advance(request):
            draft.evict(next(r for r in reversed(running) if r not in draft.preempt))
    if not draft.preempt:
        for request in state.waiting:
            if not draft.admit(request):
                break
    return draft.plan(), memo
