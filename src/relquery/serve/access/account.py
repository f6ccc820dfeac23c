"""What one request has used, for its limits, its line in the log and its trace."""

from __future__ import annotations

from dataclasses import dataclass

from relquery.engine.requests.relquery import Latency
from relquery.prompt import Answer, Finish
from relquery.serve.access.rates import Rates
from relquery.serve.errors import as_http


@dataclass(slots=True, eq=False)
class Account:
    """Filled while the request is served; used in the event loop alone.

    rates: what its key may use. prompts: asked. first_token: seconds until the first token of any
    answer. latency: of the last relQuery that has ended. error: what broke it, as a word.
    """

    rates: Rates | None = None
    prompts: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    first_token: float | None = None
    latency: Latency | None = None
    error: str | None = None

    def answered(self, answer: Answer) -> None:
        """Count an answer. What was refused has cost nothing."""
        if answer.finish is Finish.ERROR:
            return
        self.prompt_tokens += answer.prompt_tokens
        self.cached_tokens += answer.cached_tokens
        self.output_tokens += answer.output_tokens
        first = answer.first_token
        if first is not None and (self.first_token is None or first < self.first_token):
            self.first_token = first
        if self.rates is not None:
            self.rates.charge(answer.prompt_tokens + answer.output_tokens)

    def ended(self, latency: Latency | None, error: BaseException | None) -> None:
        """Note how a relQuery has ended."""
        self.latency = latency or self.latency
        if error is not None:
            found = as_http(error)
            self.error = found.code or str(found.status)
