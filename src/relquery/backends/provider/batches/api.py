"""What the batch API of a provider is to those who submit batches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from relquery.backends.provider.batches.store import Job
from relquery.backends.provider.form.trouble import TroubleError

Line = tuple[str, dict[str, Any]]
"""A request: its id, and its body with the model."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a batch is. state: "running", "ended", or "failed" if the provider refuses it whole.

    done: requests with a result so far. why: it failed, or ended before all were answered.
    expires: seconds since 1970 at which it ends at the latest; None if that is not known.
    answered: those that have an answer, as the provider counts them.
    """

    state: Literal["running", "ended", "failed"]
    done: int
    why: str = ""
    expires: float | None = None
    answered: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """Of one request: the body of a reply, or why there is none."""

    custom: str
    text: str | None
    trouble: TroubleError | None = None


class UndecidedError(Exception):
    """Whether a batch was submitted is not to be told yet."""


class BatchApi(Protocol):
    """The batch API of one server, with open connections. All raise TroubleError.

    most, most_bytes: requests of a batch, and bytes of them. title: of the provider.
    """

    @property
    def most(self) -> int: ...

    @property
    def most_bytes(self) -> int: ...

    @property
    def title(self) -> str: ...

    async def prepare(self, job: Job, lines: Sequence[Line]) -> Any:
        """What `submit` is to be given. It costs nothing, and may be done again."""
        ...

    async def submit(self, job: Job, prepared: Any) -> str:
        """Submit a batch, once; gives the provider's id of it."""
        ...

    async def find(self, job: Job, customs: Collection[str], known: Collection[str]) -> str | None:
        """The provider's id of a batch that may have been submitted; None if it was not.

        customs: its requests. known: ids of other batches. Raises UndecidedError.
        """
        ...

    async def standing(self, remote: str) -> Standing:
        """How far a batch is."""
        ...

    async def results(self, remote: str) -> list[Result]:
        """The results of a batch that has ended, in any order; unanswered requests may lack, and
        so may those that cannot be read.
        """
        ...

    async def cancel(self, remote: str) -> None:
        """End a batch. What was answered stays answered, and is billed."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
