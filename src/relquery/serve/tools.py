"""Tools in requests and in answers: what the three APIs have in common."""

from __future__ import annotations

import json
import secrets
import string
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from relquery.errors import ConfigError
from relquery.prompt import Answer, Finish
from relquery.serve.body import Body
from relquery.serve.errors import bad_request
from relquery.tools import CallForm, CallParser, Delta, Function, ToolCall, ToolUse

_SHORT = string.ascii_letters + string.digits


def function_of(name: str, description: str | None, schema: dict[str, Any] | None) -> Function:
    """A function as a body describes it. Raises HttpError."""
    usual = {"type": "object", "properties": {}}
    try:
        return Function(name, description, json.dumps(usual if schema is None else schema))
    except ConfigError as error:
        raise bad_request(str(error), "tools") from error


def arguments_of(text: str, where: str) -> str:
    """Arguments of an earlier call, which must be an object. Raises HttpError."""
    try:
        is_object = isinstance(json.loads(text or "{}"), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise bad_request(f"{where} must be the JSON text of an object.", where)
    return text or "{}"


class CallsTools(Body):
    """A body with functions that its answer may call; each tool has its own as `described`."""

    tools: list[Any] | None = None

    @property
    @abstractmethod
    def chosen(self) -> str:
        """Which functions are called: auto, none, required, or the name of one."""

    @property
    @abstractmethod
    def is_parallel(self) -> bool:
        """Whether there may be several calls."""

    @property
    def functions(self) -> list[Function]:
        """That may be called. Raises HttpError."""
        return [each.described for each in self.tools or ()]

    @property
    def tool_use(self) -> ToolUse | None:
        """Which of them the answer may call; None where there are none. Raises HttpError."""
        functions, choice = self.functions, self.chosen
        if not functions and choice in ("auto", "none"):
            return None
        try:
            return ToolUse(tuple(functions), choice, self.is_parallel)
        except ConfigError as error:
            raise bad_request(str(error), "tool_choice") from error


class Reply:
    """One answer as its text and calls, in parts or as a whole. prefix: of the ids of calls."""

    def __init__(self, use: ToolUse | None, form: CallForm, prefix: str) -> None:
        is_read = use is not None and use.choice != "none"
        self._parser = CallParser(form) if is_read else None
        self._new_id = _ids(form, prefix)
        self.text = ""
        """All that has come."""
        self.calls: list[ToolCall] = []
        """Those that have begun, with what has come of their arguments."""

    def take(self, text: str) -> list[Delta]:
        """What a piece of the answer adds."""
        return self._heard([Delta(text)] if self._parser is None else self._parser.take(text))

    def end(self) -> list[Delta]:
        """What is left once all of it was taken."""
        return self._heard([] if self._parser is None else self._parser.end())

    def whole(self, answer: Answer) -> Reply:
        """The same with all of an answer."""
        self.take(answer.text or "")
        self.end()
        return self

    def calls_end(self, answer: Answer) -> bool:
        """Whether the answer has ended with calls, and not in their midst."""
        return bool(self.calls) and answer.finish is Finish.STOP and answer.stopped_by is None

    def _heard(self, deltas: list[Delta]) -> list[Delta]:
        for delta in deltas:
            self.text += delta.text
            if delta.call is None:
                continue
            if delta.name:
                self.calls.append(ToolCall(self._new_id(), delta.name, ""))
            before = self.calls[delta.call]
            self.calls[delta.call] = ToolCall(
                before.id, before.name, before.arguments + delta.arguments
            )
        return [delta for delta in deltas if delta != Delta()]


def _ids(form: CallForm, prefix: str) -> Callable[[], str]:
    """Makes ids of calls, which the model's chat template takes when they come back."""
    if form.short_ids:
        return lambda: "".join(secrets.choice(_SHORT) for _ in range(9))
    return lambda: f"{prefix}{secrets.token_hex(12)}"
