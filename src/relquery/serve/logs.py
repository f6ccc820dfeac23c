"""Logs of requests: lines, for people or as JSON, and traces."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import IO, TYPE_CHECKING, Any

from relquery.errors import ConfigError, MissingExtraError, unknown

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from relquery.serve.server import RequestScope

QUIET = ("uvicorn", "asyncio", "httpx", "httpcore", "mcp")
"""Loggers whose lines below warnings, such as those on each connection, say nothing of requests."""
LEVELS = ("debug", "info", "warning", "error")


class JsonLines(logging.Formatter):
    """A record as a JSON object: time, level, logger, message, and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


TEXT_LINES = logging.Formatter(
    "%(asctime)s %(levelname)s %(message)s %(fields)s", defaults={"fields": ""}
)
"""A record as a line; its fields follow as a dict."""


def set_up(form: str, level: str, stream: IO[str] | None = None) -> None:
    """Have the process's loggers write to a stream, by default standard error.

    Raises ConfigError for a form or level that is not known.
    """
    for name, value, known in (("log", form, ("json", "text")), ("log-level", level, LEVELS)):
        if value not in known:
            raise ConfigError(unknown(f"value of --{name}", value, known))
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TEXT_LINES)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


OPERATIONS: Mapping[str, str] = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
}
"""What OpenTelemetry's conventions for generative AI call the routes of the known APIs."""


class Tracing:
    """Spans for a collector, one a request.

    endpoint: such as http://localhost:4318; they go to its /v1/traces. Raises MissingExtraError
    without the `otel` extra.
    """

    def __init__(self, endpoint: str) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ModuleNotFoundError as error:
            raise MissingExtraError("Sending traces (--otlp)", "otel") from error
        about = {"service.name": "relquery", "service.version": version("relquery")}
        self._provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        address = f"{endpoint.rstrip('/').removesuffix('/v1/traces')}/v1/traces"
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(address)))
        self._current = trace.get_current_span
        self._wrap: Any = OpenTelemetryMiddleware

    def traced(self, app: ASGIApp) -> ASGIApp:
        """The application with a span around each request but those for health and the page."""
        wrapped: ASGIApp = self._wrap(
            app,
            tracer_provider=self._provider,
            excluded_urls="/health,/console,/metrics",
            exclude_spans=["receive", "send"],
        )
        return wrapped

    def describe(
        self, method: str, route: str, fields: Mapping[str, Any], asker: RequestScope | None
    ) -> None:
        """Tell of a request in its span, just before that ends. route: its template. fields: those
        of its log."""
        operation, span = OPERATIONS.get(route), self._current()
        model = "" if asker is None else asker.model
        span.update_name(f"{operation or method} {model if operation else route}")
        # What the library does not know.
        attributes = {_NAMES[name]: value for name, value in fields.items() if name in _NAMES}
        attributes["http.route"] = route
        if asker is not None and (operation is not None or asker.prompts):
            attributes["gen_ai.operation.name"] = operation or "generate_content"
            attributes["gen_ai.provider.name"] = "relquery"
            attributes["gen_ai.request.model"] = attributes["gen_ai.response.model"] = model
        if asker is not None and asker.latency is not None:
            attributes |= {f"relquery.{part}": s for part, s in asdict(asker.latency).items()}
        span.set_attributes(attributes)

    def stop(self) -> None:
        """Send what is left; may wait some seconds."""
        self._provider.shutdown()


_NAMES = {
    "request": "relquery.request",
    "error": "error.type",
    "tenant": "relquery.tenant",
    "prompts": "relquery.prompts",
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "first_token": "gen_ai.server.time_to_first_token",
}
"""What spans call fields of the log: names as in OpenTelemetry's conventions, and ours."""
