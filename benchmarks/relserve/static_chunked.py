"""A baseline: static priorities, with chunks of prompts mixed into the steps that decode.

Paper 003 compares with static priorities over an engine that computes prompts before it decodes.
Current engines mix both, which is already a gain. This baseline separates that gain from the gain
of knowing the rest of a relQuery.
"""

from __future__ import annotations

from itertools import chain

from relquery.engine.scheduling.plan import Memo, Plan, State
from relquery.engine.scheduling.policies.priority import Estimate, Priorities
from relquery.engine.scheduling.policies.relserve import TokenCount
from relquery.engine.scheduling.policies.steps import decode
from relquery.engine.scheduling.reuse import Draft


def static_chunked(state: State, memo: Memo) -> tuple[Plan, Memo]:
    """Decode all running requests, then compute prompts, of the smallest relQuery first."""
    priorities: Priorities[Estimate] = memo or Priorities(TokenCount(), state.limits, fixed=True)
    priorities.update(state)
    draft = Draft(state)
    decode(draft, priorities.sort(state.running))
    if not draft.preempt:
        waiting = (relquery.waiting for relquery in priorities.waiting(state))
        for request in chain.from_iterable(waiting):
            if not draft.admit(request):
                break
    return draft.plan(), priorities
