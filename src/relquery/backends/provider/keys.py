"""Keys of a provider: fixed, or tokens that are renewed while requests are sent."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from relquery.errors import ModelError
from relquery.redaction import hide, redacted

_RENEWED_SECONDS = 300.0
"""For which a command's token is used; those of Google and Azure live an hour."""
_COMMAND_SECONDS = 60.0

Token = Callable[[], str]
"""Gives a token that is valid now; called before each request, in a thread."""


@dataclass(slots=True)
class CommandToken:
    """What a command prints, asked for again every five minutes. Raises ModelError."""

    command: str
    """As in a shell, which is not used: words, with quotes around spaces."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    _token: str = ""
    _at: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def __call__(self) -> str:
        """A token that is at most five minutes old."""
        with self._lock:
            if not self._token or self.clock() - self._at >= _RENEWED_SECONDS:
                self._token, self._at = self._run(), self.clock()
            return self._token

    def _run(self) -> str:
        try:
            done = subprocess.run(
                shlex.split(self.command, posix=os.name != "nt"),
                capture_output=True,
                text=True,
                timeout=_COMMAND_SECONDS,
                check=False,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise ModelError(self._failed(str(error))) from error
        token = done.stdout.strip()
        if done.returncode != 0 or not token:
            why = redacted(done.stderr.strip()[-300:]) or f"exit status {done.returncode}"
            raise ModelError(self._failed(why))
        return checked(token, f"the output of `{self.command}`")

    def _failed(self, why: str) -> str:
        return (
            f"`{self.command}` gives no API key: {why}. Run it in a terminal; it must print a key "
            "or token, and nothing else. It is api_key_command (--api-key-command)."
        )


def checked(key: object, what: str) -> str:
    """A key, which messages hide from now on. Raises ModelError for what no key can be."""
    is_key = isinstance(key, str) and key and key.isascii() and key.isprintable()
    if not is_key or " " in str(key):
        raise ModelError(
            f"{what} is no API key: it is empty or holds characters that no key has. Check it."
        )
    hide(str(key))
    return str(key)


def renewed(token: Token) -> Callable[[], str]:
    """A token that is checked each time."""
    return lambda: checked(token(), "what api_key() gives")


async def in_thread(token: Token) -> str:
    """A token, without holding up requests that are under way."""
    return await asyncio.to_thread(token)
