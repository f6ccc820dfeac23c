"""First come, first served, prompts before decodes: vLLM's policy, paper 003's baseline."""

from __future__ import annotations

from relquery.engine.scheduling.draft import Draft
from relquery.engine.scheduling.plan import Memo, Plan, State
from relquery.engine.scheduling.policies.steps import decode, prefill


def fcfs(state: State, memo: Memo) -> tuple[Plan, Memo]:
    """Compute whole prompts in order of arrival while they fit; else decode running requests."""
    draft = Draft(state)
    prefill(draft, state, state.waiting)
    if not draft.work:
        decode(draft, state.running)
    return draft.plan(), memo
