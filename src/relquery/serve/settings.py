"""The settings of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from relquery.errors import ConfigError

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Settings of a server."""

    model: str
    """As for relquery.Engine."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Other arguments of relquery.Engine."""
    names: tuple[str, ...] = ()
    """Names by which clients may call the model; the first is listed."""
    adapters: Mapping[str, str] = field(default_factory=dict)
    """The folder or Hugging Face name of each adapter, by the name by which clients may call it."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Further models by the names by which clients may call them, each in an engine of its own with
    the same options."""
    host: str = "127.0.0.1"
    """The address where it listens; by default only on this machine."""
    port: int = 8000
    """The port where it listens."""
    embedder: str | None = None
    """An encoder for /v1/embeddings, as for relquery.load_embedder; None for none."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Files that /v1/sql may read, by name."""
    state: Path | None = None
    """A folder for uploaded files and batches; None for a temporary one that is removed at the
    end."""
    keys: Path | None = None
    """A file made by `relquery keys`; None to serve everybody as one tenant."""
    origins: tuple[str, ...] = ()
    """Web pages that may call the server from a browser (CORS)."""
    max_waiting: int = 20_000
    """Requests that may be open at once; more are answered 429."""
    max_body: int = 64 * MIB
    """Bytes of a request's body."""
    max_rows: int = 100_000
    """Prompts that one relQuery or batch may have."""
    sql_memory: str = "2GB"
    """Memory that the tables and one statement may take, such as "2GB"."""
    sql_seconds: float = 600.0
    """Seconds that a statement may run."""
    grace: float = 30.0
    """Seconds that running requests have to end when the server is stopped."""
    share_cache: bool = False
    """Whether tenants read states that other tenants' prompts computed, so that response times tell
    what others have sent."""
    open: bool = False
    """Whether those who reach this machine over a network are served without keys, too."""
    log: str = "text"
    """The form of the log on standard error: "text" or "json"."""
    log_level: str = "warning"
    """The least level of the log."""
    otlp: str | None = None
    """Address of an OpenTelemetry collector that gets a trace of each request."""

    def __post_init__(self) -> None:
        for model in (self.model, *self.others.values()):
            if model.startswith("openai:"):
                raise ConfigError(
                    f"model is {model!r}. A server runs a model on this machine: give its name or "
                    "folder, e.g. 'demo'."
                )
        for kind, names in (("adapter", self.adapters), ("model", self.others)):
            known = {*self.called, *(self.others if kind == "adapter" else ())}
            if twice := [name for name in names if name in known]:
                raise ConfigError(
                    f"The {kind} '{twice[0]}' has the name of the model. Give it another name."
                )
        for name in ("max_waiting", "max_body", "max_rows"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} is {value!r}; it must be a positive number.")
        if not 0 <= self.port <= 65_535:
            raise ConfigError(f"port is {self.port}; it must be from 0 to 65535 (0: any free one).")
        for name in ("sql_seconds", "grace"):
            value, least = getattr(self, name), " above 0" if name == "sql_seconds" else ""
            if not 0 <= value < inf or (least and not value):
                raise ConfigError(
                    f"{name} is {value}; it must be a finite number of seconds{least}."
                )
        if self.keys is None and not self.open and not is_local(self.host):
            raise ConfigError(
                f"Everybody who reaches {self.host} could use this server. Make keys (relquery "
                "keys add NAME --file keys.json) and give --keys keys.json, or give --open to "
                "serve without keys."
            )
        for origin in self.origins:
            _check_origin(origin)

    @property
    def called(self) -> tuple[str, ...]:
        """By which clients may call the first model itself."""
        return self.names or (self.model,)


def is_local(host: str) -> bool:
    """Whether only this machine reaches a server that listens there."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _check_origin(origin: str) -> None:
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc}":
        raise ConfigError(
            f"origin is {origin!r}; it must be as browsers write it, e.g. https://example.com or "
            "http://localhost:3000."
        )
