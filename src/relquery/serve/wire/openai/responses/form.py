"""A response as an object, whole or in the making."""

from __future__ import annotations

import secrets
import time
from typing import Any

from relquery.prompt import Answer
from relquery.serve.answering import EventStream
from relquery.serve.errors import HttpError
from relquery.serve.flow import Flow
from relquery.serve.wire.openai.responses.asked import ResponseBody
from relquery.serve.wire.openai.responses.events import ResponseEvents, part_of
from relquery.serve.wire.openai.usage import finish_of, response_usage_of

Json = dict[str, Any]


class ResponseForm:
    """One response in OpenAI's form. See Form."""

    def __init__(self, body: ResponseBody) -> None:
        self._body = body
        self._id, self.item = f"resp_{secrets.token_hex(24)}", f"msg_{secrets.token_hex(24)}"
        self._created = int(time.time())

    async def whole(self, answers: list[Answer]) -> Json:
        (answer,) = answers
        return self.ended(answer)

    def stream(self, flow: Flow) -> EventStream:
        return ResponseEvents(self).stream(flow)

    def begun(self) -> Json:
        """The response before its answer."""
        return self._shown("in_progress")

    def ended(self, answer: Answer) -> Json:
        """The response with its answer. Raises HttpError for one that could not be served."""
        cut = finish_of(answer) == "length"
        status = "incomplete" if cut else "completed"
        return self._shown(
            status,
            incomplete_details={"reason": "max_output_tokens"} if cut else None,
            output=[self.message(status, [part_of(answer.text or "")])],
            usage=response_usage_of(answer),
            completed_at=None if cut else int(time.time()),
        )

    def failed(self, error: HttpError) -> Json:
        """The response that an error has ended."""
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        return self._shown("failed", error={"code": code, "message": error.message})

    def message(self, status: str, content: list[Json]) -> Json:
        """The answer as an item of the output."""
        return {
            "type": "message",
            "id": self.item,
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _shown(self, status: str, **more: Any) -> Json:
        body = self._body
        form = body.text.format if body.text and body.text.format else None
        shown = form.model_dump(by_alias=True, exclude_none=True) if form else {"type": "text"}
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "completed_at": None,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": None,
            "metadata": body.metadata or {},
            "model": body.model,
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": False,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "text": {"format": shown},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": 0,
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "truncation": "disabled",
            "usage": None,
        } | more
