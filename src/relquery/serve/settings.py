"""The settings of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import inf
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from relquery.errors import ConfigError

MIB = 1 << 20


def setting(default: Any, help: str, *names: str, **more: Any) -> Any:
    """A field that is an option of `relquery serve`, too. names, more: of the option."""
    return field(default=default, metadata={"option": (names, help, more)})


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """Settings about who is served, how much, and how a server is run."""

    PANEL: ClassVar[str | None] = "Server, access and limits"

    embedder: str | None = setting(
        None,
        "An encoder for /v1/embeddings and /v1/rerank: auto for one that is installed, or a folder "
        "or Hugging Face name.",
    )
    host: str = setting("127.0.0.1", "Where to listen.")
    port: int = setting(8000, "0 for any free one.")
    state: Path | None = setting(
        None,
        "Where uploaded files and batches are kept. By default they are lost at the end.",
        metavar="FOLDER",
    )
    keys: Path | None = setting(
        None, "Serve only who has one of these keys (`relquery keys add`).", metavar="FILE"
    )
    open: bool = setting(False, "Serve whoever reaches this machine, without keys.", "--open")
    share_cache: bool = setting(
        False,
        "Tenants read states of one another's prompts. It is faster; response times then tell "
        "whether another tenant has sent the same text.",
        "--share-cache",
    )
    origins: list[str] | None = setting(
        None,
        "A web page that may call the server from browsers, e.g. https://example.com. May be given "
        "several times.",
        "--origin",
        metavar="URL",
    )
    max_waiting: int = setting(20_000, "Prompts that may be open at once; more are answered 429.")
    max_body: int = setting(64 * MIB, "Bytes of a request, at most.")
    max_rows: int = setting(100_000, "Prompts of one request or batch, at most.")
    sql_memory: str = setting(
        "2GB", "What the tables and one statement of /v1/sql may take, e.g. 2GB.", metavar="SIZE"
    )
    sql_seconds: float = setting(600.0, "How long a statement may run.", metavar="SECONDS")
    grace: float = setting(
        30.0, "How long running requests may take after Ctrl-C or SIGTERM.", metavar="SECONDS"
    )
    log: str = setting("text", "Form of the log: text or json.")
    log_level: str = setting("info", "debug, info (a line per request), warning or error.")
    otlp: str | None = setting(
        None,
        "An OpenTelemetry collector that gets a trace of each request, e.g. http://localhost:4318.",
        metavar="URL",
        envvar="OTEL_EXPORTER_OTLP_ENDPOINT",
    )


@dataclass(frozen=True, slots=True)
class ServeConfig(AccessSettings):
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
    tables: Mapping[str, str] = field(default_factory=dict)
    """Files that /v1/sql may read, by name."""

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
        for origin in self.origins or ():
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
