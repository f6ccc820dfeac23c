"""What is known of a batch."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal[
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "cancelling",
    "cancelled",
]
ENDED: tuple[Status, ...] = ("failed", "completed", "cancelled")
_TIMES = (
    "in_progress",
    "finalizing",
    "completed",
    "failed",
    "expired",
    "cancelling",
    "cancelled",
)


@dataclass(slots=True)
class Record:
    """A batch as it is kept on disk.

    key: the name of the key that it was made with, whose limits count; "" where none is needed.
    input, output, errors: ids of files; the latter two are given when it is made. has_output,
    has_errors: whether these are known to clients. times: seconds since 1970, by status.
    wrong: what is wrong with the input, in OpenAI's form.
    """

    tenant: str
    endpoint: str
    input: str
    output: str
    errors: str
    metadata: dict[str, str] | None = None
    id: str = field(default_factory=lambda: f"batch_{secrets.token_hex(12)}")
    created_at: int = field(default_factory=lambda: int(time.time()))
    status: Status = "validating"
    times: dict[str, int] = field(default_factory=dict)
    total: int = 0
    completed: int = 0
    failed: int = 0
    has_output: bool = False
    has_errors: bool = False
    wrong: list[dict[str, Any]] = field(default_factory=list)
    key: str = ""

    def become(self, status: Status) -> None:
        """Go on to another status, now."""
        self.status = status
        self.times[status] = int(time.time())

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens to it."""
        return self.status in ENDED

    def kept(self) -> dict[str, Any]:
        """As it is written to disk."""
        return asdict(self)

    def shown(self) -> dict[str, Any]:
        """As clients see it."""
        times = {f"{name}_at": self.times.get(name) for name in _TIMES}
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "errors": {"object": "list", "data": self.wrong} if self.wrong else None,
            "input_file_id": self.input,
            "completion_window": "24h",
            "status": self.status,
            "output_file_id": self.output if self.has_output else None,
            "error_file_id": self.errors if self.has_errors else None,
            "created_at": self.created_at,
            "expires_at": None,
            **times,
            "request_counts": {
                "total": self.total,
                "completed": self.completed,
                "failed": self.failed,
            },
            "metadata": self.metadata,
        }
