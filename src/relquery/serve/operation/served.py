"""One HTTP request that has been served, as logs, metrics and traces see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relquery.serve.access.gate import Asker

NO_ROUTE = "other"
"""In place of a route: there are few of those, but any number of wrong paths."""


@dataclass(frozen=True, slots=True)
class Served:
    """route: its template, or NO_ROUTE. began: nanoseconds since 1970. asker: None for requests
    that need no key, and where it is not known who asks. error: a word for what went wrong."""

    id: str
    method: str
    path: str
    route: str
    status: int
    began: int
    seconds: float
    headers: Sequence[tuple[bytes, bytes]]
    asker: Asker | None
    error: str | None

    def fields(self, model: str) -> dict[str, Any]:
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
        if self.asker is None:
            return found
        account = self.asker.account
        if self.asker.tenant:
            found |= {"tenant": self.asker.tenant, "key": self.asker.name}
        if account.prompts:
            found |= {
                "model": model,
                "prompts": account.prompts,
                "prompt_tokens": account.prompt_tokens,
                "cached_tokens": account.cached_tokens,
                "output_tokens": account.output_tokens,
            }
        if account.first_token is not None:
            found["first_token"] = round(account.first_token, 6)
        return found
