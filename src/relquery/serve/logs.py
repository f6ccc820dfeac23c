"""Logs as lines for people, or as one JSON object a line, and what they say of a request."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

from relquery.errors import ConfigError, unknown

if TYPE_CHECKING:
    from relquery.serve.server import RequestScope

QUIET = ("uvicorn", "asyncio", "httpx", "httpcore", "mcp")
"""Loggers whose lines below warnings, such as those on each connection, say nothing of requests."""
LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Served:
    """One HTTP request that has been served, as logs, metrics and traces see it."""

    id: str
    method: str
    path: str
    route: str
    """Its template."""
    status: int
    seconds: float
    asker: RequestScope | None
    """None for requests that need no key, and where it is not known who asks."""
    error: str | None
    """A word for what went wrong."""

    def fields(self) -> dict[str, Any]:
        """For the log. It has nothing of prompts and answers but their sizes."""
        found: dict[str, Any] = {
            "request": self.id,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "seconds": round(self.seconds, 6),
        }
        if self.error is not None:
            found["error"] = self.error
        asker = self.asker
        if asker is None:
            return found
        if asker.tenant:
            found |= {"tenant": asker.tenant, "key": asker.identity.name}
        if asker.prompts:
            found |= {
                "model": asker.model,
                "prompts": asker.prompts,
                "prompt_tokens": asker.prompt_tokens,
                "cached_tokens": asker.cached_tokens,
                "output_tokens": asker.output_tokens,
            }
        if asker.first_token is not None:
            found["first_token"] = round(asker.first_token, 6)
        return found


class JsonLines(logging.Formatter):
    """A record as a JSON object: time, level, logger, message, and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        found = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)


class TextLines(logging.Formatter):
    """A record as a line; its fields follow as name=value."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """See logging.Formatter."""
        fields = getattr(record, "fields", {})
        shown = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
        line = super().formatMessage(record)
        return f"{line} {shown}" if shown else line


def _shown(value: object) -> str:
    """A value of which no part can pass for another field or line."""
    text = str(value)
    return text if text.isprintable() and not set(text) & set(' "=') else json.dumps(text)


def set_up(form: str, level: str, stream: IO[str] | None = None) -> None:
    """Have the process's loggers write to a stream, by default standard error.

    Raises ConfigError for a form or level that is not known.
    """
    for name, value, known in (("log", form, ("json", "text")), ("log-level", level, LEVELS)):
        if value not in known:
            raise ConfigError(unknown(f"value of --{name}", value, known))
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
