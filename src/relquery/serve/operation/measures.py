"""What a server counts and times, for Prometheus."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from relquery.backends.remote.link import Tally
from relquery.backends.service.state import EngineState
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


@dataclass(slots=True)
class _Tenant:
    """The figures of one tenant, so that no answer has to look them up by their labels."""

    prompts: Counter
    cached: Counter
    output: Counter
    first: Histogram
    whole: Histogram
    per_token: Histogram
    parts: tuple[Histogram, Histogram, Histogram]
    queries: Counter


class Measures:
    """The figures of one server, in a registry of its own. Used in the event loop alone.

    policy: the engine's.
    """

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._registry = CollectorRegistry()
        self._tenants: dict[str, _Tenant] = {}
        self._tallies: dict[str, Tally] = {}  # of each, also beyond MOST_TENANTS: they are small
        self._make_of_requests()
        self._make_of_answers()
        self._make_of_engine()
        ProcessCollector(registry=self._registry)

    def _make_of_requests(self) -> None:
        self._requests = self._counter(
            "http_requests", "HTTP requests that were answered.", "path", "status", "tenant"
        )
        self._seconds = self._histogram(
            "http_request_seconds", "Seconds from a request to the end of its answer.", "path"
        )
        self._refused = self._counter(
            "refused", "Requests that came too early or were too many (429).", "reason", "tenant"
        )
        self._errors = self._counter("errors", "Errors by kind.", "kind", "tenant")

    def _make_of_answers(self) -> None:
        self._prompts = self._counter("prompt_tokens", "Prompt tokens of answers.", "tenant")
        self._cached = self._counter(
            "cached_tokens", "Prompt tokens whose states came from the cache.", "tenant"
        )
        self._output = self._counter("output_tokens", "Tokens of answers.", "tenant")
        self._first = self._histogram(
            "first_token_seconds", "Seconds from a prompt to its first token.", "tenant"
        )
        self._whole = self._histogram(
            "answer_seconds", "Seconds from a prompt to its whole answer.", "tenant"
        )
        self._per_token = self._histogram(
            "output_token_seconds",
            "Seconds per token after the first of an answer.",
            "tenant",
            buckets=TOKEN_BUCKETS,
        )
        self._queries = self._counter("queries", "RelQueries that have ended.", "policy", "tenant")
        self._parts = self._histogram(
            "query_seconds",
            "Seconds of relQueries by part: waiting until the first prompt is begun, core until "
            "the last prompt is computed, tail until the last answer.",
            "part",
            "policy",
            "tenant",
        )

    def _make_of_engine(self) -> None:
        self._open = self._gauge("requests_open", "Prompts that have no answer yet.")
        self._serving = self._gauge("http_requests_open", "HTTP requests that are being served.")
        self._queue = self._gauge("engine_requests", "Prompts in the engine by state.", "state")
        self._cache = self._gauge(
            "cache_tokens", "Tokens that requests hold, and that later ones may find.", "state"
        )
        self._capacity = self._gauge("cache_capacity_tokens", "Capacity of the cache in tokens.")
        self._up = self._gauge("engine_up", "Whether the engine's process has its model.")
        self._restarts = self._counter("engine_restarts", "Starts of the engine after the first.")
        self._restarts_seen = 0

    def answered(self, tenant: str, answer: Answer, seconds: float) -> None:
        """Count an answer. seconds: since its prompt was handed in."""
        if answer.finish in (Finish.ERROR, Finish.CANCELLED):
            self.failed(tenant, f"answer_{answer.finish.value}")
        if answer.finish is Finish.ERROR:
            return  # what was refused has cost nothing
        self._tallies.setdefault(tenant, Tally()).add(answer)
        figures = self._of(tenant)
        figures.prompts.inc(answer.prompt_tokens)
        figures.cached.inc(answer.cached_tokens)
        figures.output.inc(answer.output_tokens)
        if answer.finish is Finish.CANCELLED:
            return
        figures.whole.observe(seconds)
        if answer.first_token is not None:
            figures.first.observe(answer.first_token)
            if answer.output_tokens > 1:
                each = (seconds - answer.first_token) / (answer.output_tokens - 1)
                figures.per_token.observe(max(0.0, each))

    def tally(self, tenant: str) -> Tally:
        """Sums over the answers to a tenant."""
        return self._tallies.get(tenant, Tally())

    def ended(self, tenant: str, latency: Latency | None) -> None:
        """Count a relQuery that has ended."""
        figures = self._of(tenant)
        figures.queries.inc()
        if latency is not None:
            seconds = (latency.waiting, latency.core, latency.tail)
            for part, each in zip(figures.parts, seconds, strict=True):
                part.observe(each)

    def served(self, path: str, status: int, tenant: str, seconds: float) -> None:
        """Count an HTTP request. path: the template of its route."""
        self._requests.labels(path, str(status), self._name(tenant)).inc()
        self._seconds.labels(path).observe(seconds)

    def refused(self, reason: str, tenant: str) -> None:
        """Count a request that was answered 429."""
        self._refused.labels(reason, self._name(tenant)).inc()

    def failed(self, tenant: str, kind: str) -> None:
        """Count an error. kind: one of few words."""
        self._errors.labels(kind, self._name(tenant)).inc()

    def page(self, opened: int, serving: int, state: EngineState | None, starts: int) -> bytes:
        """All figures in Prometheus' text form.

        opened, serving: prompts and HTTP requests that are open. state: None where the engine does
        not tell; its figures are then the last ones. starts: of the engine's process.
        """
        self._open.set(opened)
        self._serving.set(serving)
        self._restarts.inc(starts - 1 - self._restarts_seen)
        self._restarts_seen = starts - 1
        self._up.set(state is not None)
        if state is not None:
            self._queue.labels("waiting").set(state.waiting)
            self._queue.labels("running").set(state.running)
            self._cache.labels("held").set(state.held)
            self._cache.labels("cached").set(state.cached)
            self._capacity.set(state.cache_tokens)
        return generate_latest(self._registry)

    def _name(self, tenant: str) -> str:
        self._of(tenant)
        return tenant if tenant in self._tenants else OTHER

    def _of(self, tenant: str) -> _Tenant:
        found = self._tenants.get(tenant)
        if found is not None:
            return found
        name = tenant if len(self._tenants) < MOST_TENANTS else OTHER
        if name not in self._tenants:
            self._tenants[name] = self._made(name)
        return self._tenants[name]

    def _made(self, name: str) -> _Tenant:
        waiting, core, tail = (
            self._parts.labels(part, self._policy, name) for part in ("waiting", "core", "tail")
        )
        return _Tenant(
            self._prompts.labels(name),
            self._cached.labels(name),
            self._output.labels(name),
            self._first.labels(name),
            self._whole.labels(name),
            self._per_token.labels(name),
            (waiting, core, tail),
            self._queries.labels(self._policy, name),
        )

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, help_, labels, registry=self._registry)

    def _gauge(self, name: str, help_: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, help_, labels, registry=self._registry)

    def _histogram(
        self, name: str, help_: str, *labels: str, buckets: tuple[float, ...] = BUCKETS
    ) -> Histogram:
        return Histogram(PREFIX + name, help_, labels, buckets=buckets, registry=self._registry)
