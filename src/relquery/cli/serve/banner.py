"""What `relquery serve` says in the terminal: progress, and where it serves."""

from __future__ import annotations

import json
import shlex
from types import TracebackType
from typing import TYPE_CHECKING, Self

import typer
from rich.text import Text

from relquery.cli.terminal.console import errors_console

if TYPE_CHECKING:
    from relquery.serve.server import Server
    from relquery.serve.settings import ServeConfig


class Banner:
    """Shows progress while the model loads, and then the address and what to try."""

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self._loading = errors_console().status(Text(f"loading {config.model}"))

    def told(self, server: Server, port: int) -> None:
        """The server takes requests."""
        self._loading.stop()
        host = self._config.host
        at = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        for line in self._lines(server, f"http://{at}:{port}"):
            typer.echo(line)

    def _lines(self, server: Server, url: str) -> list[str]:
        name, facts = server.models[0], server.model(None).facts
        names = ", ".join(server.models)
        key = "" if self._config.keys is None else '-H "Authorization: Bearer $KEY" '
        body = json.dumps({"model": name, "messages": [{"role": "user", "content": "Hello"}]})
        return [
            f"Serving {names} at {url} (policy {facts.policy}, context {facts.context:,} tokens, "
            f"cache {facts.cache_tokens:,} tokens)",
            f"In a browser: {url}/",
            f"Try it: curl {url}/v1/chat/completions {key}-H 'Content-Type: application/json' "
            f"-d {shlex.quote(body)}",
            f"All paths: {url}/openapi.json   Figures: {url}/metrics   Ctrl-C stops it.",
        ]

    def __enter__(self) -> Self:
        self._loading.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loading.stop()
