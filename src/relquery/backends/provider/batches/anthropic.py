"""Anthropic's Message Batches: the requests go up in one body, and results come down in lines."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relquery.backends.provider.batches.api import Line, Result, Standing, UndecidedError
from relquery.backends.provider.batches.store import Job
from relquery.backends.provider.form.reply import short
from relquery.backends.provider.form.trouble import TroubleError, trouble_of

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_SKEW_SECONDS = 600.0
"""Between our clock and the provider's, at most."""
_PAGE = 100
_STATUS = {
    "invalid_request_error": 400, "authentication_error": 401, "permission_error": 403,
    "not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "api_error": 500,
    "timeout_error": 504, "overloaded_error": 529,
}  # fmt: skip


@dataclass(slots=True)
class AnthropicBatches:
    """See BatchApi."""

    client: AsyncAnthropic
    timeout: float
    most: int = 100_000
    most_bytes: int = 250_000_000
    title: str = "Anthropic"

    async def prepare(self, job: Job, lines: Sequence[Line]) -> Any:
        """See BatchApi: the requests."""
        del job
        return [{"custom_id": custom, "params": body} for custom, body in lines]

    async def submit(self, job: Job, prepared: Any) -> str:
        """See BatchApi."""
        del job
        try:
            # Never again by itself: the first one may have been taken, though no reply came.
            once = self.client.with_options(max_retries=0)
            batch = await once.messages.batches.create(requests=prepared)
        except Exception as error:
            raise trouble_of(error, self.timeout) from error
        return batch.id

    async def find(self, job: Job, customs: Collection[str], known: Collection[str]) -> str | None:
        """See BatchApi. Anthropic keeps no metadata of a batch: its results tell whose it is."""
        wanted, others, undecided = set(customs), set(known), False
        try:
            async for batch in self.client.messages.batches.list(limit=_PAGE):
                if batch.created_at.timestamp() < job.begun - _SKEW_SECONDS:
                    break  # the newest come first
                counts = batch.request_counts
                size = sum(
                    (counts.processing, counts.succeeded, counts.errored, counts.canceled,
                     counts.expired)
                )  # fmt: skip
                if batch.id in others or size != job.size:
                    continue
                if batch.processing_status != "ended":
                    undecided = True
                    continue
                if any(result.custom in wanted for result in await self._results(batch.id)):
                    return batch.id
        except Exception as error:
            raise trouble_of(error, self.timeout) from error
        if undecided:
            raise UndecidedError
        return None

    async def standing(self, remote: str) -> Standing:
        """See BatchApi."""
        try:
            batch = await self.client.messages.batches.retrieve(remote)
        except Exception as error:
            raise trouble_of(error, self.timeout) from error
        counts = batch.request_counts
        done = counts.succeeded + counts.errored + counts.canceled + counts.expired
        if batch.processing_status != "ended":
            return Standing("running", done, expires=batch.expires_at.timestamp())
        why = "The batch was cancelled." if counts.canceled else ""
        why = "The batch has expired." if counts.expired else why
        return Standing("ended", done, why, answered=counts.succeeded)

    async def results(self, remote: str) -> list[Result]:
        """See BatchApi."""
        try:
            return await self._results(remote)
        except Exception as error:
            raise trouble_of(error, self.timeout) from error

    async def _results(self, remote: str) -> list[Result]:
        # Line by line: the SDK gives up at the first one that cannot be read.
        streamed = self.client.messages.batches.with_streaming_response
        async with streamed.results(remote) as reply:
            text = await reply.text()
        lines = text.split("\n")  # JSON may have other line ends in its texts
        return [found for line in lines if (found := _result(line)) is not None]

    async def cancel(self, remote: str) -> None:
        """See BatchApi."""
        try:
            await self.client.messages.batches.cancel(remote)
        except Exception as error:
            raise trouble_of(error, self.timeout) from error

    async def close(self) -> None:
        """See BatchApi."""
        await self.client.close()


def _result(line: str) -> Result | None:
    """The result in a line; None if there is none."""
    try:
        found = json.loads(line)
        custom, result = found["custom_id"], found["result"]
        if (how := result["type"]) == "succeeded":
            return Result(custom, json.dumps(result["message"]))
        if how != "errored":
            words = f"The request was {how} with its batch."
            trouble = TroubleError("late" if how == "expired" else "odd", words)
            return Result(custom, None, trouble)
        said = result["error"]["error"]
        kind, message = said["type"], str(said["message"])
        status = _STATUS.get(kind, 400)
        words = f"The server answered {status}: {short(message).rstrip('.')}."
        trouble = TroubleError("status", words, status, said=message, code=kind)
        return Result(custom, None, trouble)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
