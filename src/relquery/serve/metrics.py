"""The metrics of a server, for Prometheus."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from relquery.backends.local.state import EngineState
from relquery.backends.remote.link import AnswerTotals
from relquery.engine.requests.relquery import Latency
from relquery.prompt import Answer, Finish

MOST_TENANTS = 200
"""Tenants with figures of their own; those that come later share the name OTHER."""
OTHER = "other"
BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 150, 600,
)  # fmt: skip
TOKEN_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
PREFIX = "relquery_"
REASONS = {"rate_limit_exceeded": "rate_limit"}
"""What figures call an error's code where they call it differently."""
_COUNTERS: dict[str, tuple[str, ...]] = {
    "HTTP requests that were answered.": ("http_requests", "path", "status", "tenant"),
    "Requests that came too early or were too many (429).": ("refused", "reason", "tenant"),
    "Errors by kind.": ("errors", "kind", "tenant"),
    "Prompt tokens of answers.": ("prompt_tokens", "tenant"),
    "Prompt tokens whose states came from the cache.": ("cached_tokens", "tenant"),
    "Tokens of answers.": ("output_tokens", "tenant"),
    "RelQueries that have ended.": ("queries", "policy", "tenant"),
    "Starts of the engine after the first.": ("engine_restarts",),
}
_HISTOGRAMS: dict[str, tuple[str, ...]] = {
    "Seconds from a request to the end of its answer.": ("http_request_seconds", "path"),
    "Seconds from a prompt to its first token.": ("first_token_seconds", "tenant"),
    "Seconds from a prompt to its whole answer.": ("answer_seconds", "tenant"),
    "Seconds per token after the first of an answer.": ("output_token_seconds", "tenant"),
    "Seconds of relQueries by part: waiting until the first prompt is begun, core until the last "
    "prompt is computed, tail until the last answer.": (
        "query_seconds",
        "part",
        "policy",
        "tenant",
    ),
}
_GAUGES: dict[str, tuple[str, ...]] = {
    "Prompts that have no answer yet.": ("requests_open",),
    "HTTP requests that are being served.": ("http_requests_open",),
    "Prompts in the engine by state.": ("engine_requests", "state"),
    "Tokens that requests hold, and that later ones may find.": ("cache_tokens", "state"),
    "Capacity of the cache in tokens.": ("cache_capacity_tokens",),
    "Whether the engine's process has its model.": ("engine_up",),
}


class Metrics:
    """The figures of one server, in a registry of its own. Used in the event loop alone.

    policy: the engine's.
    """

    def __init__(self, policy: str) -> None:
        self._policy, self._restarts = policy, 0
        self._registry = CollectorRegistry()
        self._names: dict[str, str] = {}
        self._tallies: dict[
            str, AnswerTotals
        ] = {}  # of each, also beyond MOST_TENANTS: they are small
        self._figures: dict[str, Any] = {}
        for kind, figures in ((Counter, _COUNTERS), (Gauge, _GAUGES), (Histogram, _HISTOGRAMS)):
            for said, (name, *labels) in figures.items():
                buckets = TOKEN_BUCKETS if name == "output_token_seconds" else BUCKETS
                more: dict[str, Any] = {"buckets": buckets} if kind is Histogram else {}
                self._figures[name] = kind(
                    PREFIX + name, said, labels, registry=self._registry, **more
                )
        ProcessCollector(registry=self._registry)

    def answered(self, tenant: str, answer: Answer, seconds: float) -> None:
        """Count an answer. seconds: since its prompt was handed in."""
        if answer.finish in (Finish.ERROR, Finish.CANCELLED):
            self.failed(tenant, f"answer_{answer.finish.value}")
        if answer.finish is Finish.ERROR:
            return  # what was refused has cost nothing
        self._tallies.setdefault(tenant, AnswerTotals()).add(answer)
        name = self._name(tenant)
        self._of("prompt_tokens", name).inc(answer.prompt_tokens)
        self._of("cached_tokens", name).inc(answer.cached_tokens)
        self._of("output_tokens", name).inc(answer.output_tokens)
        if answer.finish is Finish.CANCELLED:
            return
        self._of("answer_seconds", name).observe(seconds)
        if answer.first_token is not None:
            self._of("first_token_seconds", name).observe(answer.first_token)
            if answer.output_tokens > 1:
                each = (seconds - answer.first_token) / (answer.output_tokens - 1)
                self._of("output_token_seconds", name).observe(max(0.0, each))

    def tally(self, tenant: str) -> AnswerTotals:
        """Sums over the answers to a tenant."""
        return self._tallies.get(tenant, AnswerTotals())

    def ended(self, tenant: str, latency: Latency | None) -> None:
        """Count a relQuery that has ended."""
        name = self._name(tenant)
        self._of("queries", self._policy, name).inc()
        for part, seconds in ({} if latency is None else asdict(latency)).items():
            self._of("query_seconds", part, self._policy, name).observe(seconds)

    def served(
        self, path: str, status: int, tenant: str, seconds: float, error: str | None
    ) -> None:
        """Count an HTTP request. path: the template of its route. error: a word for what went
        wrong."""
        name = self._name(tenant)
        self._of("http_requests", path, str(status), name).inc()
        self._of("http_request_seconds", path).observe(seconds)
        if status == 429:
            self._of("refused", REASONS.get(error or "", error or ""), name).inc()
        if error is not None:
            self.failed(tenant, error)

    def failed(self, tenant: str, kind: str) -> None:
        """Count an error. kind: one of few words."""
        self._of("errors", kind, self._name(tenant)).inc()

    def page(self, opened: int, serving: int, state: EngineState | None, restarts: int) -> bytes:
        """All figures in Prometheus' text form.

        opened, serving: prompts and HTTP requests that are open. state: None where the engine does
        not tell; its figures are then the last ones. restarts: of the engine's process.
        """
        self._of("requests_open").set(opened)
        self._of("http_requests_open").set(serving)
        self._of("engine_restarts").inc(restarts - self._restarts)
        self._restarts = restarts
        self._of("engine_up").set(state is not None)
        if state is not None:
            for name in ("waiting", "running"):
                self._of("engine_requests", name).set(getattr(state, name))
            for name in ("held", "cached"):
                self._of("cache_tokens", name).set(getattr(state, name))
            self._of("cache_capacity_tokens").set(state.cache_tokens)
        return generate_latest(self._registry)

    def _name(self, tenant: str) -> str:
        """What figures call a tenant."""
        if tenant not in self._names and len(self._names) < MOST_TENANTS:
            self._names[tenant] = tenant
        return self._names.get(tenant, OTHER)

    def _of(self, name: str, *labels: str) -> Any:
        """A figure with its labels."""
        figure = self._figures[name]
        return figure.labels(*labels) if labels else figure
