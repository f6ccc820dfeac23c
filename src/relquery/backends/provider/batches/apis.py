"""Batch APIs: OpenAI's takes a file of requests and gives files of results; to Anthropic's Message
Batches the requests go up in one body, and results come down in lines.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from relquery.backends.provider.batches.jobs import Job
from relquery.backends.wires.errors import sdk_error, short
from relquery.backends.wires.wire import Json, Result, Wire

Line = tuple[str, Json]
"""A request: its id, and its body."""
_MARK = "relquery"
"""The key of the metadata under which a batch of OpenAI's has our id."""
_ENDED = {
    "completed": "",
    "expired": "The batch has expired.",
    "cancelled": "The batch was cancelled.",
}
_SKEW_SECONDS = 600.0
"""Between our clock and the provider's, at most."""
_PAGE = 100


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a batch is."""

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
    """Whether a batch was submitted is not to be told yet."""


@dataclass(slots=True)
class BatchApi(ABC):
    """The batch API of one server, with open connections. All methods raise ProviderError."""

    title: ClassVar[str]
    """Of the provider."""
    sdk: Any
    wire: Wire
    timeout: float
    most: int
    """Requests of a batch."""
    most_bytes: int

    @abstractmethod
    async def prepare(self, job: Job, lines: Sequence[Line]) -> Any:
        """What `submit` is to be given. It costs nothing, and may be done again."""

    @abstractmethod
    async def submit(self, job: Job, prepared: Any) -> str:
        """Submit a batch, once; gives the provider's id of it."""

    @abstractmethod
    async def find(self, job: Job, customs: Collection[str], known: Collection[str]) -> str | None:
        """The provider's id of a batch that may have been submitted; None if it was not.

        customs: its requests. known: ids of other batches. Raises UndecidedError.
        """

    @abstractmethod
    async def standing(self, remote: str) -> Standing:
        """How far a batch is."""

    @abstractmethod
    async def results(self, remote: str) -> list[Result]:
        """The results of a batch that has ended, in any order; unanswered requests may lack, and
        so may those that cannot be read.
        """

    @abstractmethod
    async def cancel(self, remote: str) -> None:
        """End a batch. What was answered stays answered, and is billed."""

    async def close(self) -> None:
        """Close the connections."""
        await self.sdk.close()

    @property
    def once(self) -> Any:
        """The SDK without its own retries: what it submits may be taken, though no reply came."""
        return self.sdk.with_options(max_retries=0)

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """A block that raises nothing of an SDK's."""
        try:
            yield
        except Exception as error:
            raise sdk_error(error, self.timeout) from error


@dataclass(slots=True)
class OpenAIBatches(BatchApi):
    """OpenAI's Batch API."""

    title: ClassVar[str] = "OpenAI"
    most: int = 50_000
    most_bytes: int = 190_000_000

    async def prepare(self, job: Job, lines: Sequence[Line]) -> Any:
        """The id of the file with the requests."""
        text = "".join(
            json.dumps(self.wire.line(custom, body), ensure_ascii=False) + "\n"
            for custom, body in lines
        )
        file = f"{_MARK}-{job.id}.jsonl", text.encode("utf-8", "surrogatepass")
        with self._calling():
            found: str = (await self.sdk.files.create(file=file, purpose="batch")).id
        return found

    async def submit(self, job: Job, prepared: Any) -> str:
        with self._calling():
            batch = await self.once.batches.create(
                input_file_id=prepared,
                endpoint=f"/v1{self.wire.path}",
                completion_window="24h",
                metadata={_MARK: job.id},
            )
        return str(batch.id)

    async def find(self, job: Job, customs: Collection[str], known: Collection[str]) -> str | None:
        del customs, known
        with self._calling():
            async for batch in self.sdk.batches.list(limit=_PAGE):
                if (batch.metadata or {}).get(_MARK) == job.id:
                    return str(batch.id)
                if batch.created_at < job.begun - _SKEW_SECONDS:  # the newest come first
                    break
        return None

    async def standing(self, remote: str) -> Standing:
        batch = await self._retrieve(remote)
        counts = batch.request_counts
        done = 0 if counts is None else counts.completed + counts.failed
        if batch.status == "failed":
            said = [] if batch.errors is None else (batch.errors.data or [])
            texts = dict.fromkeys(each.message for each in said if each.message)
            return Standing("failed", done, short("; ".join(texts) or "No reason is given."))
        if batch.status in _ENDED:
            answered = 0 if counts is None else counts.completed
            return Standing("ended", done, _ENDED[batch.status], answered=answered)
        return Standing("running", done, expires=batch.expires_at)

    async def results(self, remote: str) -> list[Result]:
        batch, results = await self._retrieve(remote), list[Result]()
        for file in (batch.output_file_id, batch.error_file_id):
            if file is not None:
                with self._calling():
                    text = (await self.sdk.files.content(file)).text
                results += self.wire.results(text)
        return results

    async def cancel(self, remote: str) -> None:
        with self._calling():
            await self.sdk.batches.cancel(remote)

    async def _retrieve(self, remote: str) -> Any:
        with self._calling():
            return await self.sdk.batches.retrieve(remote)


@dataclass(slots=True)
class AnthropicBatches(BatchApi):
    """Anthropic's Message Batches."""

    title: ClassVar[str] = "Anthropic"
    most: int = 100_000
    most_bytes: int = 250_000_000

    async def prepare(self, job: Job, lines: Sequence[Line]) -> Any:
        """The requests."""
        del job
        return [self.wire.line(custom, body) for custom, body in lines]

    async def submit(self, job: Job, prepared: Any) -> str:
        del job
        with self._calling():
            return str((await self.once.messages.batches.create(requests=prepared)).id)

    async def find(self, job: Job, customs: Collection[str], known: Collection[str]) -> str | None:
        """Anthropic keeps no metadata of a batch: its results tell whose it is."""
        wanted, others, undecided = set(customs), set(known), False
        with self._calling():
            async for batch in self.sdk.messages.batches.list(limit=_PAGE):
                if batch.created_at.timestamp() < job.begun - _SKEW_SECONDS:
                    break  # the newest come first
                counts = batch.request_counts
                if batch.id in others or counts.processing + _done(counts) != job.size:
                    continue
                if batch.processing_status != "ended":
                    undecided = True
                elif any(result.custom in wanted for result in await self._results(batch.id)):
                    return str(batch.id)
        if undecided:
            raise UndecidedError
        return None

    async def standing(self, remote: str) -> Standing:
        with self._calling():
            batch = await self.sdk.messages.batches.retrieve(remote)
        counts = batch.request_counts
        if batch.processing_status != "ended":
            return Standing("running", _done(counts), expires=batch.expires_at.timestamp())
        why = "The batch was cancelled." if counts.canceled else ""
        why = "The batch has expired." if counts.expired else why
        return Standing("ended", _done(counts), why, answered=counts.succeeded)

    async def results(self, remote: str) -> list[Result]:
        with self._calling():
            return await self._results(remote)

    async def cancel(self, remote: str) -> None:
        with self._calling():
            await self.sdk.messages.batches.cancel(remote)

    async def _results(self, remote: str) -> list[Result]:
        # As text: the SDK gives up at the first line that cannot be read.
        streamed = self.sdk.messages.batches.with_streaming_response
        async with streamed.results(remote) as reply:
            return self.wire.results(await reply.text())


def _done(counts: Any) -> int:
    return int(counts.succeeded + counts.errored + counts.canceled + counts.expired)
