"""OpenAI's Batch API: a file of requests goes up, and files of results come down."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import openai

from relquery.backends.provider.batches.api import Line, Result, Standing
from relquery.backends.provider.batches.store import Job
from relquery.backends.provider.form.reply import short
from relquery.backends.provider.form.trouble import Kind, TroubleError, trouble_of

_MARK = "relquery"
"""The key of the metadata under which a batch has our id."""
_ENDED = {
    "completed": "",
    "expired": "The batch has expired.",
    "cancelled": "The batch was cancelled.",
}
_SKEW_SECONDS = 600.0
"""Between our clock and the provider's, at most."""
_PAGE = 100


@dataclass(slots=True)
class OpenAIBatches:
    """See BatchApi. endpoint: that the requests are for, e.g. "/v1/chat/completions"."""

    client: openai.AsyncOpenAI
    endpoint: str
    timeout: float
    most: int = 50_000
    most_bytes: int = 190_000_000
    title: str = "OpenAI"

    async def prepare(self, job: Job, lines: Sequence[Line]) -> Any:
        """See BatchApi: the id of the file with the requests."""
        text = "".join(
            json.dumps(
                {"custom_id": custom, "method": "POST", "url": self.endpoint, "body": body},
                ensure_ascii=False,
            )
            + "\n"
            for custom, body in lines
        )
        try:
            file = await self.client.files.create(
                file=(f"{_MARK}-{job.id}.jsonl", text.encode("utf-8", "surrogatepass")),
                purpose="batch",
            )
        except Exception as error:
            raise trouble_of(error, self.timeout) from error
        return file.id

    async def submit(self, job: Job, prepared: Any) -> str:
        """See BatchApi."""
        try:
            # Never again by itself: the first one may have been taken, though no reply came.
            once = self.client.with_options(max_retries=0)
            batch = await once.batches.create(
                input_file_id=prepared,
                endpoint=self.endpoint,  # type: ignore[arg-type]
                completion_window="24h",
                metadata={_MARK: job.id},
            )
        except Exception as error:
            raise trouble_of(error, self.timeout) from error
        return batch.id

    async def find(self, job: Job, customs: Collection[str], known: Collection[str]) -> str | None:
        """See BatchApi."""
        del customs, known
        try:
            async for batch in self.client.batches.list(limit=_PAGE):
                if (batch.metadata or {}).get(_MARK) == job.id:
                    return batch.id
                if batch.created_at < job.begun - _SKEW_SECONDS:  # the newest come first
                    break
        except Exception as error:
            raise trouble_of(error, self.timeout) from error
        return None

    async def standing(self, remote: str) -> Standing:
        """See BatchApi."""
        batch = await self._retrieve(remote)
        counts = batch.request_counts
        done = 0 if counts is None else counts.completed + counts.failed
        if batch.status == "failed":
            return Standing("failed", done, _words(batch))
        if batch.status in _ENDED:
            answered = 0 if counts is None else counts.completed
            return Standing("ended", done, _ENDED[batch.status], answered=answered)
        return Standing("running", done, expires=batch.expires_at)

    async def results(self, remote: str) -> list[Result]:
        """See BatchApi."""
        batch, results = await self._retrieve(remote), list[Result]()
        for file in (batch.output_file_id, batch.error_file_id):
            if file is None:
                continue
            try:
                content = await self.client.files.content(file)
            except Exception as error:
                raise trouble_of(error, self.timeout) from error
            lines = content.text.split("\n")  # JSON may have other line ends in its texts
            results += [found for line in lines if (found := _result(line)) is not None]
        return results

    async def cancel(self, remote: str) -> None:
        """See BatchApi."""
        try:
            await self.client.batches.cancel(remote)
        except Exception as error:
            raise trouble_of(error, self.timeout) from error

    async def close(self) -> None:
        """See BatchApi."""
        await self.client.close()

    async def _retrieve(self, remote: str) -> Any:
        try:
            return await self.client.batches.retrieve(remote)
        except Exception as error:
            raise trouble_of(error, self.timeout) from error


def _result(line: str) -> Result | None:
    """The result in a line; None if there is none."""
    try:
        found = json.loads(line)
        custom, reply, error = found["custom_id"], found.get("response"), found.get("error")
        if reply and reply["status_code"] == 200:
            return Result(custom, json.dumps(reply["body"]))
        status = None if reply is None else int(reply["status_code"])
        said = error or (reply or {}).get("body", {}).get("error") or {}
        text = short(str(said.get("message") or said or "no reason is given")).rstrip(".")
        code = said.get("code")
        words = f"The server answered {status}: {text}." if status else f"{text}."
        kind: Kind = "status" if status else "late" if code == "batch_expired" else "odd"
        return Result(custom, None, TroubleError(
            kind, words, status, said=str(said),
            code=code if isinstance(code, str) else None, param=said.get("param"),
        ))  # fmt: skip
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _words(batch: Any) -> str:
    """Why a batch was refused."""
    said = [] if batch.errors is None else (batch.errors.data or [])
    texts = dict.fromkeys(each.message for each in said if each.message)
    return short("; ".join(texts) or "No reason is given.")
