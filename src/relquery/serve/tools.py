"""Tools in requests and in answers: what the three APIs have in common."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable, Sequence
from typing import Any

from relquery.errors import ConfigError
from relquery.prompt import Answer, Finish
from relquery.serve.errors import bad_request, not_supported
from relquery.tools import CallForm, CallParser, Delta, Function, ToolCall, ToolUse

_SHORT = string.ascii_letters + string.digits


def function_of(name: str, description: str | None, schema: dict[str, Any] | None) -> Function:
    """A function as a body describes it. Raises HttpError."""
    usual = {"type": "object", "properties": {}}
    try:
        return Function(name, description, json.dumps(usual if schema is None else schema))
    except ConfigError as error:
        raise bad_request(str(error), "tools") from error


def use_of(functions: Sequence[Function], choice: str, *, parallel: bool) -> ToolUse | None:
    """Which functions an answer may call; None where a body has none. Raises HttpError."""
    if not functions and choice in ("auto", "none"):
        return None
    try:
        return ToolUse(tuple(functions), choice, parallel)
    except ConfigError as error:
        raise bad_request(str(error), "tool_choice") from error


def arguments_of(text: str, where: str) -> str:
    """Arguments of an earlier call, which must be an object. Raises HttpError."""
    try:
        is_object = isinstance(json.loads(text or "{}"), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise bad_request(f"{where} must be the JSON text of an object.", where)
    return text or "{}"


def only(kind: str) -> Callable[[Any], Any]:
    """For a validator of tools: those of another type are refused by its name."""

    def check(given: Any) -> Any:
        found = given.get("type") if isinstance(given, dict) else None
        if isinstance(found, str) and found != kind:
            raise not_supported("tools", f"A tool has the type {found[:40]}; give {kind} ones.")
        return given

    return check


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
