"""OpenAI's files and batches, and Anthropic's message batches.

A batch ends `seconds` after it was made, once it has been looked at so often.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.message import Message
from email.parser import BytesParser
from types import ModuleType

from benchmarks.providers.standin.errors import Refused, parse
from benchmarks.providers.standin.forms import chat, messages, responses
from benchmarks.providers.standin.forms.asked import Json
from benchmarks.providers.standin.forms.batch import (
    Batch,
    Line,
    MadeBatch,
    MadeMessages,
    Outcome,
    Result,
    anthropic_line,
    openai,
    openai_line,
    wrong,
)

Answer = Callable[[ModuleType, Sequence[Json], float], Sequence[Outcome]]
"""What becomes of the requests of a batch, in the form of a module, by the time it ends."""


@dataclass(slots=True)
class Batches:
    """All files and batches of a customer.

    clock: in seconds. seconds, looks: until a batch ends. problem: of the batches to come.
    """

    answer: Answer
    clock: Callable[[], float]
    seconds: float = 60.0
    looks: int = 0
    problem: str | None = None
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
        asked, problem = list[tuple[str, Json]](), self.problem
        try:
            lines = [parse(Line, line, "openai") for line in data.splitlines() if line.strip()]
            asked = [(line.custom_id, line.body) for line in lines]
            problem = problem or wrong(lines, made.endpoint)
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
        lines = [(row.custom_id, row.params) for row in made.requests]
        return self._add("msgbatch", messages, lines)

    def _add(self, kind: str, form: ModuleType, lines: Sequence[tuple[str, Json]]) -> Batch:
        now = self.clock()
        name = f"{kind}_{len(self.batches) + 1}"
        batch = self.batches[name] = Batch(name, now, now + self.seconds, form, lines)
        return batch

    def batch(self, name: str) -> Batch:
        """A batch as it is now, looked at once more. Raises Refused."""
        if name not in self.batches:
            raise Refused(404, f"No batch found with id '{name}'.")
        batch = self.batches[name]
        batch.looks += 1
        if batch.done is None and batch.problem is None and self._has_ended(batch):
            outcomes: Sequence[Outcome] = ["canceled"] * len(batch.lines)
            if batch.cancelled is None:
                bodies = [body for _, body in batch.lines]
                outcomes = self.answer(batch.form, bodies, batch.ends)
            names = (name for name, _ in batch.lines)
            batch.done = list(map(Result, names, outcomes))
        return batch

    def _has_ended(self, batch: Batch) -> bool:
        is_due = batch.looks >= self.looks and self.clock() >= batch.ends
        return batch.cancelled is not None or is_due

    def cancel(self, name: str) -> Batch:
        """Cancel what has not ended: none of its requests is answered."""
        batch = self.batch(name)
        if batch.done is None and batch.cancelled is None:
            batch.cancelled = batch.ends = self.clock()
        return batch

    def openai(self, batch: Batch) -> Json:
        """A batch in OpenAI's form; its files are there once it has ended."""
        if batch.done is not None and "output_file_id" not in batch.fields:
            for name, kinds in (("output", ["succeeded"]), ("error", ["errored", "expired"])):
                lines = [openai_line(each) for each in batch.done if each.kind in kinds]
                batch.fields[f"{name}_file_id"] = self._lines(lines, name)
        return openai(batch)

    def results(self, batch: Batch) -> str:
        """The lines of Anthropic's results. Raises Refused before the batch has ended."""
        if batch.done is None:
            raise Refused(404, f"Batch {batch.id} has no available results; it has not ended.")
        return "".join(f"{json.dumps(anthropic_line(result))}\n" for result in batch.done)

    def _lines(self, lines: Sequence[Json], kind: str) -> str | None:
        """The id of a file of results; None without any."""
        if not lines:
            return None
        data = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        return str(self._keep(data, f"batch_{kind}.jsonl", "batch_output")["id"])


def _content(part: Message) -> bytes:
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""
