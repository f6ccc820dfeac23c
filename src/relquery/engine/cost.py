"""What a step costs, as a linear model of the work in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinearCost:
    """Seconds of one step, linear in its work (RelServe §4.2, eq. 9-10, with a context term).

    step: fixed cost. prefill_token: per computed prompt token. decode_request: per request that
    decodes one token. context_token: per cached token that a request attends to.
    """

    step: float = 0.02
    prefill_token: float = 1e-4
    decode_request: float = 2e-4
    context_token: float = 0.0

    def seconds(self, prefill_tokens: int, decode_requests: int, context_tokens: int) -> float:
        """Predicted duration of a step."""
        return (
            self.step
            + self.prefill_token * prefill_tokens
            + self.decode_request * decode_requests
            + self.context_token * context_tokens
        )
