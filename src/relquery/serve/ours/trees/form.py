"""Answers to span queries in the form of chat completions, or of completions for a map."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

from relquery.prompt import Finish
from relquery.spans.result import SpanResult


class Form:
    """One answer. completes: in the form of completions. model: as clients call it."""

    def __init__(self, result: SpanResult, model: str, completes: bool) -> None:
        self._result, self._completes = result, completes
        kind = "cmpl" if completes else "chatcmpl"
        self._head = {
            "id": f"{kind}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self) -> dict[str, Any]:
        """The body."""
        kind = "text_completion" if self._completes else "chat.completion"
        choices = [
            self._choice(at, text, self._finish(text)) for at, text in enumerate(self._result.texts)
        ]
        return {**self._head, "object": kind, "choices": choices, "usage": self._usage()}

    def events(self) -> Iterator[bytes]:
        """The same as server-sent events: each choice, its end, and the usage."""
        kind = "text_completion" if self._completes else "chat.completion.chunk"
        for at, text in enumerate(self._result.texts):
            for part, finish in ((text, None), ("", self._finish(text))):
                choice = self._choice(at, part, finish, is_part=True)
                yield _event({**self._head, "object": kind, "choices": [choice]})
        yield _event({**self._head, "object": kind, "choices": [], "usage": self._usage()})
        yield b"data: [DONE]\n\n"

    def _choice(
        self, at: int, text: str, finish: str | None, *, is_part: bool = False
    ) -> dict[str, Any]:
        said: dict[str, Any] = {"text": text}
        if not self._completes:
            message = {"role": "assistant", "content": text}
            said = {"delta" if is_part else "message": message}
        return {"index": at, **said, "logprobs": None, "finish_reason": finish}

    def _finish(self, text: str) -> str:
        """Why an answer ended."""
        answers = [one.answer for one in self._result.report.generations]
        cut = {one.text for one in answers if one.finish is Finish.LENGTH}
        return "length" if text in cut else "stop"

    def _usage(self) -> dict[str, Any]:
        """Of all generations, inner ones included."""
        report = self._result.report
        prompts, drawn = report.prompt_tokens, report.output_tokens
        return {
            "prompt_tokens": prompts,
            "completion_tokens": drawn,
            "total_tokens": prompts + drawn,
            "prompt_tokens_details": {"cached_tokens": report.cached_tokens},
        }


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
