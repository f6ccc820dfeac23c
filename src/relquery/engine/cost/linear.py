"""What a step costs, as a linear model of the work in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinearCost:
    """Seconds of one step, linear in its work (paper 003, eq. 9, with a term for the context).

    prefill_slope: per prompt token computed; prefill_intercept: per step that computes prompts.
    decode_slope: per request that decodes a token; decode_intercept: per step that decodes. A step
    that does both reads the weights once, so only the larger of the two intercepts counts.
    context_slope: per cached token that a request attends to.
    """

    prefill_slope: float = 1e-4
    prefill_intercept: float = 0.02
    decode_slope: float = 2e-4
    decode_intercept: float = 0.02
    context_slope: float = 0.0

    def seconds(
        self, prefill_tokens: float, decode_requests: int, context_tokens: int = 0
    ) -> float:
        """Predicted duration of a step."""
        return (
            self.prefill_slope * prefill_tokens
            + self.decode_slope * decode_requests
            + max(
                self.prefill_intercept if prefill_tokens else 0.0,
                self.decode_intercept if decode_requests else 0.0,
            )
            + self.context_slope * context_tokens
        )
