"""Batch APIs: OpenAI's takes a file of requests and gives files of results; to Anthropic's Message
Batches the requests go up in one body, and results come down in lines.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Literal

from relquery.backends.provider.batch_jobs import BatchJob
from relquery.backends.provider.client import ProviderClient
from relquery.backends.wires.errors import ProviderError, short
from relquery.backends.wires.wire import GARBLED, BatchResult, Json, encoded

Line = tuple[str, Json]
"""A request: its id, and its body."""
_MARK = "relquery"
"""The key of the metadata under which a batch of OpenAI's has our id."""
_ENDED = {
    "completed": "",
    "expired": "The batch has expired.",
    "cancelled": "The batch was cancelled.",
}
_PAGE = 100


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress of a batch."""

    state: Literal["running", "ended", "failed"]
    """Failed: the provider refuses it whole."""
    done: int
    """Requests with a result so far."""
    why: str = ""
    """It failed, or ended before all were answered."""
    expires: float | None = None
    """Seconds since 1970 at which it ends at the latest; None if that is not known."""
    answered: int = 0
    """Requests that have an answer, as the provider counts them."""


class UndecidedError(Exception):
    """The provider cannot tell yet whether a batch was submitted."""


@dataclass(slots=True)
class BatchApi(ABC):
    """The batch API of one server. All methods raise ProviderError."""

    title: ClassVar[str]
    """Of the provider."""
    path: ClassVar[str]
    """Of batches."""
    after: ClassVar[str]
    """Parameter of a list: the last batch of the page before."""
    slack: ClassVar[float]
    """Seconds by which a batch may seem older than it is, our clock's error left out."""
    client: ProviderClient
    most: int
    """Requests of a batch."""
    most_bytes: int

    @abstractmethod
    async def prepare(self, job: BatchJob, lines: Sequence[Line]) -> Json:
        """What `submit` is to be given. It costs nothing, and may be done again."""

    async def submit(self, prepared: Json) -> str:
        """Submit a batch, once; gives the provider's id of it."""
        with _read():
            return str((await self._call("POST", "", is_single=True, json=prepared))["id"])

    @abstractmethod
    async def find(
        self, job: BatchJob, customs: Collection[str], known: Collection[str]
    ) -> str | None:
        """The provider's id of a batch that may have been submitted; None if it was not.

        customs: its requests. known: ids of other batches. Raises UndecidedError.
        """

    async def standing(self, remote: str) -> Standing:
        """The progress of a batch."""
        with _read():
            return self._standing(await self._call("GET", f"/{remote}"))

    @abstractmethod
    def _standing(self, batch: Json) -> Standing:
        """How far a batch is, as the provider says it."""

    @abstractmethod
    async def results(self, remote: str) -> list[BatchResult]:
        """The results of a batch that has ended, in any order; unanswered requests may lack, and
        so may those that cannot be read.
        """

    async def cancel(self, remote: str) -> None:
        """End a batch. What was answered stays answered, and is billed."""
        await self._call("POST", f"/{remote}/cancel")

    async def _call(self, method: str, path: str, **more: Any) -> Any:
        with _read():
            return (await self.client.call(method, self.path + path, **more)).json()

    async def _since(self, job: BatchJob) -> AsyncIterator[Json]:
        """Batches that may be a job's, the newest first."""
        asked: Json = {"limit": _PAGE}
        while True:
            reply = await self.client.call("GET", self.path, params=asked)
            page, begun = reply.json(), job.begun - _ahead(reply.headers.get("date"))
            for batch in page["data"]:
                if _seconds(batch["created_at"]) < begun - self.slack:
                    return
                yield batch
            if not (page.get("has_more") and page["data"]):
                return
            asked[self.after] = page["data"][-1]["id"]


@dataclass(slots=True)
class OpenAIBatches(BatchApi):
    """OpenAI's Batch API."""

    title: ClassVar[str] = "OpenAI"
    path: ClassVar[str] = "/batches"
    after: ClassVar[str] = "after"
    slack: ClassVar[float] = 86_400.0  # it is known by our id, so that others do no harm
    most: int = 50_000
    most_bytes: int = 190_000_000

    async def prepare(self, job: BatchJob, lines: Sequence[Line]) -> Json:
        wire = self.client.wire
        content = b"".join(encoded(wire.line(custom, body)) + b"\n" for custom, body in lines)
        file = f"{_MARK}-{job.id}.jsonl", content
        with _read():
            stored = await self.client.call(
                "POST", "/files", files={"file": file}, data={"purpose": "batch"}
            )
            return {
                "input_file_id": stored.json()["id"],
                "endpoint": f"/v1{wire.path}",
                "completion_window": "24h",
                "metadata": {_MARK: job.id},
            }

    async def find(
        self, job: BatchJob, customs: Collection[str], known: Collection[str]
    ) -> str | None:
        del customs, known
        with _read():
            async for batch in self._since(job):
                if (batch.get("metadata") or {}).get(_MARK) == job.id:
                    return str(batch["id"])
        return None

    def _standing(self, batch: Json) -> Standing:
        counts, status = batch.get("request_counts") or {}, batch["status"]
        answered = counts.get("completed", 0)
        done = answered + counts.get("failed", 0)
        if status == "failed":
            said = (batch.get("errors") or {}).get("data") or []
            texts = dict.fromkeys(each["message"] for each in said if each.get("message"))
            return Standing("failed", done, short("; ".join(texts) or "No reason is given."))
        if status in _ENDED:
            return Standing("ended", done, _ENDED[status], answered=answered)
        return Standing("running", done, expires=batch.get("expires_at"))

    async def results(self, remote: str) -> list[BatchResult]:
        batch, results = await self._call("GET", f"/{remote}"), list[BatchResult]()
        for file in (batch.get("output_file_id"), batch.get("error_file_id")):
            if file is not None:
                text = (await self.client.call("GET", f"/files/{file}/content")).text
                results += self.client.wire.results(text)
        return results


@dataclass(slots=True)
class AnthropicBatches(BatchApi):
    """Anthropic's Message Batches."""

    title: ClassVar[str] = "Anthropic"
    path: ClassVar[str] = "/v1/messages/batches"
    after: ClassVar[str] = "after_id"
    slack: ClassVar[float] = 600.0
    most: int = 100_000
    most_bytes: int = 250_000_000

    async def prepare(self, job: BatchJob, lines: Sequence[Line]) -> Json:
        del job
        return {"requests": [self.client.wire.line(custom, body) for custom, body in lines]}

    async def find(
        self, job: BatchJob, customs: Collection[str], known: Collection[str]
    ) -> str | None:
        """Anthropic keeps no metadata of a batch: its results tell whose it is."""
        wanted, others, undecided = set(customs), set(known), False
        with _read():
            async for batch in self._since(job):
                counts = batch["request_counts"]
                if batch["id"] in others or counts["processing"] + _done(counts) != job.size:
                    continue
                if batch["processing_status"] != "ended":
                    undecided = True
                elif any(each.custom in wanted for each in await self.results(batch["id"])):
                    return str(batch["id"])
        if undecided:
            raise UndecidedError
        return None

    def _standing(self, batch: Json) -> Standing:
        counts = batch["request_counts"]
        if batch["processing_status"] != "ended":
            return Standing("running", _done(counts), expires=_seconds(batch["expires_at"]))
        why = "The batch was cancelled." if counts["canceled"] else ""
        why = "The batch has expired." if counts["expired"] else why
        return Standing("ended", _done(counts), why, answered=counts["succeeded"])

    async def results(self, remote: str) -> list[BatchResult]:
        text = (await self.client.call("GET", f"{self.path}/{remote}/results")).text
        return self.client.wire.results(text)


@contextmanager
def _read() -> Iterator[None]:
    """A block that reads replies, which may have another form than the API says."""
    try:
        yield
    except GARBLED as error:
        raise ProviderError("odd", f"The request failed: {error!r}") from error


def _done(counts: Json) -> int:
    return sum(counts[name] for name in ("succeeded", "errored", "canceled", "expired"))


def _ahead(date: str | None) -> float:
    """Seconds by which our clock is ahead of a server's. date: what a reply's header says."""
    try:
        return 0.0 if date is None else time.time() - parsedate_to_datetime(date).timestamp()
    except ValueError:
        return 0.0


def _seconds(moment: float | str) -> float:
    """Since 1970."""
    return datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else moment
