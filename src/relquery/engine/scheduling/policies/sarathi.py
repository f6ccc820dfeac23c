"""First come, first served, chunks of prompts mixed with decodes (Sarathi, Agrawal et al. 2024)."""

from __future__ import annotations

from relquery.engine.scheduling.plan import Memo, Plan, State
from relquery.engine.scheduling.reuse import Draft


def sarathi(state: State, memo: Memo) -> tuple[Plan, Memo]:
    """Advance all running requests, then admit waiting ones, each in order of arrival.

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
