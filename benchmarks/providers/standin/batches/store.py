"""OpenAI's files and batches, and Anthropic's message batches.

The requests of a batch are sent together: none of them reads what another one writes. A batch ends
`seconds` after it was made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.message import Message
from email.parser import BytesParser
from types import ModuleType

from benchmarks.providers.standin.billing import Account
from benchmarks.providers.standin.cache import Reading
from benchmarks.providers.standin.errors import Refused, parse
from benchmarks.providers.standin.faults import Faults
from benchmarks.providers.standin.forms import chat, messages, responses
from benchmarks.providers.standin.forms.asked import Asked, Given, Json, said
from benchmarks.providers.standin.forms.batch import (
    Batch,
    Line,
    MadeBatch,
    MadeMessages,
    Parsed,
    Result,
    anthropic_line,
    openai,
    openai_line,
    wrong,
)
from benchmarks.providers.standin.prompt import Sent

_FAILED = Refused(500, "The server had an error while processing your request.")


@dataclass(slots=True)
class Batches:
    """All files and batches of a customer.

    account, faults, answer, clock: those of the stand-in. seconds: until a batch ends. submitted:
    requests in all batches.
    """

    account: Account
    faults: Faults
    answer: Callable[[Sent], str]
    clock: Callable[[], float]
    seconds: float = 60.0
    submitted: int = 0
    files: dict[str, tuple[Json, bytes]] = field(default_factory=dict)
    batches: dict[str, Batch] = field(default_factory=dict)

    def add_file(self, content_type: str, body: bytes) -> Json:
        """Store an uploaded file. content_type: of the form with the file in it."""
        head = f"Content-Type: {content_type}\r\n\r\n".encode()
        parts: dict[object, Message] = {
            part.get_param("name", header="content-disposition"): part
            for part in BytesParser().parsebytes(head + body).walk()
        }
        purpose = _content(parts["purpose"]).decode() if "purpose" in parts else ""
        if purpose != "batch" or "file" not in parts:
            raise Refused(400, f"Invalid value for purpose: '{purpose}'.", None, "purpose")
        return self._keep(_content(parts["file"]), str(parts["file"].get_filename()), purpose)

    def _keep(self, data: bytes, name: str, purpose: str) -> Json:
        file: Json = {
            "id": f"file-{len(self.files) + 1}",
            "object": "file",
            "bytes": len(data),
            "created_at": int(self.clock()),
            "filename": name,
            "purpose": purpose,
            "status": "processed",
        }
        self.files[file["id"]] = file, data
        return file

    def file(self, name: str) -> tuple[Json, bytes]:
        """(what is known of a file, its content). Raises Refused."""
        if name not in self.files:
            raise Refused(404, f"No such File object: {name}", None, "id")
        return self.files[name]

    def make(self, body: bytes) -> Batch:
        """A batch of OpenAI's. One whose file is wrong fails."""
        made = parse(MadeBatch, body, "openai")
        _, data = self.file(made.input_file_id)
        form = chat if made.endpoint == "/v1/chat/completions" else responses
        asked, problem = list[tuple[str, Parsed]](), None
        try:
            lines = [parse(Line, line, "openai") for line in data.splitlines() if line.strip()]
            asked = [(line.custom_id, _read(form, line.body)) for line in lines]
            problem = wrong(lines, made.endpoint)
        except Refused as refused:
            problem = refused.message
        batch = self._add("batch", form, [] if problem else asked)
        batch.fields, batch.problem = made.model_dump(), problem
        return batch

    def make_messages(self, body: bytes) -> Batch:
        """A batch of Anthropic's. Raises Refused."""
        made = parse(MadeMessages, body, "anthropic")
        ids = [row.custom_id for row in made.requests]
        if len(set(ids)) < len(ids):
            raise Refused(400, "requests: custom_id must be unique within a batch")
        asked = [(row.custom_id, _read(messages, row.params)) for row in made.requests]
        return self._add("msgbatch", messages, asked)

    def _add(self, kind: str, form: ModuleType, asked: Sequence[tuple[str, Parsed]]) -> Batch:
        now = self.clock()
        name = f"{kind}_{len(self.batches) + 1}"
        batch = Batch(name, now, now + self.seconds, form, asked)
        self.batches[name] = batch
        self.submitted += len(asked)
        return batch

    def batch(self, name: str) -> Batch:
        """A batch as it is now. Raises Refused."""
        if name not in self.batches:
            raise Refused(404, f"No batch found with id '{name}'.")
        batch = self.batches[name]
        now = self.clock()
        if batch.done is None and batch.problem is None and now >= batch.ends:
            batch.done = self._results(batch)
        return batch

    def cancel(self, name: str) -> Batch:
        """Cancel what has not ended: none of its requests is answered."""
        batch = self.batch(name)
        if batch.done is None and batch.cancelled is None:
            batch.cancelled = batch.ends = self.clock()
        return batch

    def _results(self, batch: Batch) -> list[Result]:
        if batch.cancelled is not None:
            gone = Refused(400, "This request was cancelled.", "batch_cancelled")
            return [Result(name, gone, None) for name, _ in batch.asked]
        looked = [(name, one, self._look_up(one, batch.ends)) for name, one in batch.asked]
        return [self._result(*each, batch) for each in looked]

    def _look_up(self, asked: Parsed, now: float) -> Reading | None:
        if isinstance(asked, Refused):
            return None
        return self.account.look_up(asked.model, asked.sent, now)

    def _result(self, name: str, asked: Parsed, reading: Reading | None, batch: Batch) -> Result:
        if isinstance(asked, Refused) or reading is None:
            return Result(name, asked if isinstance(asked, Refused) else _FAILED, None)
        fault = self.faults.of(asked.sent)
        if fault is not None and fault != "refusal":
            return Result(name, _FAILED, asked)
        reading.begin(batch.ends)
        text, cut = said(asked, self.answer(asked.sent))
        answered = self.account.bill(asked.model, reading, text, in_batch=True)
        number, refused = self.account.totals.requests, fault == "refusal"
        given = Given(text, cut, reading, answered, number, int(batch.ends), refused)
        return Result(name, given, asked)

    def openai(self, batch: Batch) -> Json:
        """A batch in OpenAI's form; its files are there once it has ended."""
        if batch.done is not None and "output_file_id" not in batch.fields:
            for kind in ("output", "error"):
                wanted = Given if kind == "output" else Refused
                lines = [
                    openai_line(result, batch.form)
                    for result in batch.done
                    if isinstance(result.given, wanted)
                ]
                batch.fields[f"{kind}_file_id"] = self._lines(lines, kind)
        return openai(batch)

    def results(self, batch: Batch) -> bytes:
        """The lines of Anthropic's results. Raises Refused before the batch has ended."""
        if batch.done is None:
            raise Refused(404, f"Batch {batch.id} has no available results; it has not ended.")
        lines = [json.dumps(anthropic_line(result, batch)) for result in batch.done]
        return "".join(f"{line}\n" for line in lines).encode()

    def _lines(self, lines: Sequence[Json], kind: str) -> str | None:
        """The id of a file of results; None without any."""
        if not lines:
            return None
        data = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        return str(self._keep(data, f"batch_{kind}.jsonl", "batch_output")["id"])


def _content(part: Message) -> bytes:
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _read(form: ModuleType, body: Json) -> Parsed:
    try:
        asked: Asked = form.read(json.dumps(body).encode())
    except Refused as refused:
        return refused
    return asked
