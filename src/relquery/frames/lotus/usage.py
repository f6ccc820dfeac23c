"""What a model's verbs have used, in the form of LOTUS's `LM().stats`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from relquery.errors import ConfigError
from relquery.report import Report


@dataclass(slots=True)
class Usage:
    """Tokens of the requests that were sent. cached_prompt_tokens: those that were in a cache."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Of prompts and answers."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def total_cost(self) -> NoReturn:
        """Refused."""
        raise ConfigError(
            "total_cost is not supported. Multiply prompt_tokens and completion_tokens with the "
            "prices of your provider."
        )


@dataclass(slots=True)
class Stats:
    """calls: requests that were sent. cache_hits: requests that had been answered before."""

    physical_usage: Usage = field(default_factory=Usage)
    calls: int = 0
    cache_hits: int = 0
    operator_cache_hits: int = 0

    @property
    def virtual_usage(self) -> NoReturn:
        """Refused."""
        raise ConfigError(
            "virtual_usage is not supported: tokens of answers that were kept are not counted. "
            "Use physical_usage and cache_hits."
        )

    def count(self, report: Report) -> None:
        """Add what a verb has asked."""
        self.calls += report.calls
        self.cache_hits += report.ledger_hits
        self.physical_usage.prompt_tokens += report.prompt_tokens
        self.physical_usage.completion_tokens += report.output_tokens
        self.physical_usage.cached_prompt_tokens += report.cached_tokens

    def __str__(self) -> str:
        used = self.physical_usage
        return (
            f"{self.calls:,} calls, {used.prompt_tokens:,} prompt tokens, "
            f"{used.completion_tokens:,} output tokens"
        )
