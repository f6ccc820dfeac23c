"""The base of all request bodies: fields that are not supported are refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from fastapi import Query, Request
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

import relquery.engine.requests.declared as engine
from relquery.errors import did_you_mean, unknown
from relquery.serve.errors import HttpError, bad_request, not_supported, refusing
from relquery.tools import Function, ToolUse

ANY = object()
"""In place of values: whatever the value, it changes no answer."""
ALIKE = 0.8
"""How similar a field that is meant must be: names that APIs add are not taken for mistakes."""
WHOLE = BeforeValidator(
    lambda value: int(value) if isinstance(value, float) and value.is_integer() else value
)
"""Of a field that is an integer: JSON has one kind of numbers, so 2.0 is one too."""
Integer = Annotated[int, WHOLE]
Natural = Annotated[int, Field(ge=0), WHOLE]
Positive = Annotated[int, Field(ge=1), WHOLE]
Temperature = Annotated[float, Field(ge=0, le=2)]
TopP = Annotated[float, Field(gt=0, le=1)]
Label = Annotated[str, Field(min_length=1)]


class Body(BaseModel):
    """The body of a request. Values of another type than a field has are refused.

    A further field is accepted where it asks for nothing: null, false, or an empty value. ACCEPTED:
    those that are accepted with other values too, which do nothing. WITHIN: the field whose value
    it is, where refusals name that one.
    """

    model_config = ConfigDict(extra="allow", strict=True)
    ACCEPTED: ClassVar[Mapping[str, Any]] = {}
    WITHIN: ClassVar[str] = ""

    @model_validator(mode="after")
    def _refuse(self) -> Body:
        for name, value in (self.model_extra or {}).items():
            neutral = self.ACCEPTED.get(name, ())
            # In JSON, false is not 0.
            if neutral is ANY or any(
                value == each and isinstance(value, bool) is isinstance(each, bool)
                for each in (*_NOTHING, *neutral)
            ):
                continue
            useful = [field.alias or own for own, field in type(self).model_fields.items()]
            useful += [own for own, values in self.ACCEPTED.items() if values is ANY]
            if name not in self.ACCEPTED and (hint := did_you_mean(name, useful, ALIKE)):
                raise bad_request(f"The field '{name}' is not known.{hint}", name, "unknown")
            place = f"{self.WITHIN}.{name}" if self.WITHIN else name
            words = " or ".join(map(json.dumps, neutral))
            refused = not_supported(place, words and f"Leave it out, or give {words}.")
            raise replace(refused, param=self.WITHIN or name)
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The schema, with the fields of ACCEPTED, and others that ask for nothing."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        fields = schema.setdefault("properties", {})
        for name, neutral in cls.ACCEPTED.items():
            fields[name] = {} if neutral is ANY else {"enum": [*_NOTHING, *neutral]}
        return schema | {"additionalProperties": {"enum": _NOTHING}}


_NOTHING: list[Any] = [None, False, "", [], {}]


def invalid(found: Sequence[Mapping[str, Any]]) -> HttpError:
    """What is wrong with a body, and where. found: errors as pydantic tells them.

    Of the forms that a field may have, the one that was read furthest counts, and of those the one
    whose type was right. An object whose `type` is not one of those that there may be is refused by
    the name of its type.
    """

    def how_telling(error: Mapping[str, Any]) -> tuple[int, bool, bool]:
        place, kind = error["loc"], error["type"]
        return len(place), not kind.endswith("_type"), bool(place) and place[-1] == "type"

    told = max(found, key=how_telling)
    if told["type"] == "json_invalid":
        reason, at = told.get("ctx", {}).get("error", ""), told["loc"][-1:]
        place = f" (character {at[0]})" if at and isinstance(at[0], int) else ""
        return bad_request(f"The body is not JSON: {reason}{place}.", code="json_invalid")
    if told["type"] == "model_attributes_type" and len(told["loc"]) <= 1:
        return bad_request(
            "The body must be a JSON object, sent with the header 'Content-Type: application/json'."
        )
    where, context = _shown(told["loc"]), told.get("ctx", {})
    if told["type"] == "literal_error" and told["loc"][-1] == "type":
        where, kind, known = _shown(told["loc"][:-1]), told["input"], context["expected"]
    else:
        kind, known = context.get("tag"), context.get("expected_tags")
    if kind is not None:
        refused = not_supported(f"{where} of type {str(kind)[:40]}", f"Give {known}.")
        return replace(refused, param=where.partition(".")[0])
    message = f"{where}: {told['msg']}" if where else str(told["msg"])
    return bad_request(message, where or None, told["type"])


def _shown(place: Sequence[object]) -> str:
    """Where a field is, with dots: without the body itself, and the forms that a field may have."""
    parts = [text for text in map(str, place) if text not in _FORMS]
    return ".".join(text for text in parts if "[" not in text and "-" not in text)


_FORMS = ("body", "str", "int", "float", "bool")


async def check_body(request: Request) -> None:
    """Raises HttpError for what `check_json` refuses, in the body of any request."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        check_json(await request.body())


def check_json(content: bytes) -> None:
    """Raises HttpError for a body with a number that JSON does not have; Python's reader takes it.

    Only a body in which such a word stands is read.
    """

    def refuse(word: str) -> None:
        message = f"The body is not JSON: {word} is not one of its numbers."
        raise bad_request(message, code="json_invalid")

    if b"NaN" in content or b"Infinity" in content:
        with suppress(ValueError, RecursionError):  # another error, which is told elsewhere
            json.loads(content, parse_constant=refuse)


class Inner(BaseModel):
    """An object in a body: fields that it does not have are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class DeclaredFields(Inner):
    """Fields in which a client describes the relQuery that a request belongs to."""

    id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The same for all requests of the relQuery."""
    rows: Positive | None = None
    """How many they will be."""
    deadline: Annotated[float, Field(gt=0)] | None = None
    """Seconds from the first of them in which all must be answered."""


HEADER = "relquery"
"""Which declares the same as a body's field of this name."""


def declared_by(body: DeclaredFields | None, headers: Sequence[str]) -> engine.Declared | None:
    """What a body and its headers declare; where they say the same, once. Raises HttpError."""
    fields: dict[str, Any] = {} if body is None else body.model_dump(exclude_none=True)
    for text in headers:
        for name, value in read_declared(text).model_dump(exclude_none=True).items():
            if fields.setdefault(name, value) != value:
                raise bad_request(
                    f"The header '{HEADER}' has {name}={value}, but the field 'relquery' of the "
                    f"body, or another such header, has {name}={fields[name]}. Give one of them.",
                    f"{HEADER}.{name}",
                )
    if body is None and not headers:
        return None
    with refusing(HEADER):
        return engine.Declared(**{"id": None, "rows": None, "deadline": None} | fields)


def read_declared(text: str) -> DeclaredFields:
    """What a header declares: `id=q7; rows=40; deadline=2.5`. Raises HttpError, which names what is
    wrong."""
    pairs = [part.partition("=")[::2] for part in text.split(";") if part.strip()]
    fields = {name.strip(): value.strip().strip('"') for name, value in pairs}
    try:
        if len(fields) < len(pairs):
            raise bad_request(f"The header '{HEADER}' has a field twice.", HEADER, "invalid_header")
        return DeclaredFields.model_validate(fields, strict=False)  # what stands in pairs is text
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        wrong = f"{name} is {fields[name]!r}: {first['msg']}."
        if first["type"] == "extra_forbidden":
            wrong = unknown("field", name, DeclaredFields.model_fields)
        message = f"The header '{HEADER}' is wrong. {wrong}"
        raise bad_request(message, f"{HEADER}.{name}", "invalid_header") from None


def function_of(name: str, description: str | None, schema: dict[str, Any] | None) -> Function:
    """A function as a body describes it. Raises HttpError."""
    usual = {"type": "object", "properties": {}}
    with refusing("tools"):
        return Function(name, description, json.dumps(usual if schema is None else schema))


def use_of(functions: Sequence[Function], choice: str, *, parallel: bool) -> ToolUse | None:
    """Which functions an answer may call; None where there are none. choice, parallel: see
    ToolUse. Raises HttpError."""
    if not functions and choice in ("auto", "none"):
        return None
    with refusing("tool_choice"):
        return ToolUse(tuple(functions), choice, parallel)


def arguments_of(text: str, where: str) -> str:
    """Arguments of an earlier call, which must be an object. Raises HttpError."""
    try:
        is_object = isinstance(json.loads(text or "{}"), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise bad_request(f"{where} must be the JSON text of an object.", where)
    return text or "{}"


def instant(seconds: int) -> str:
    """Seconds since 1970 as a time with its zone, as Anthropic's API has times."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


After = Annotated[str | None, Query(description="The id before the page's first one")]
Cursor = Annotated[str | None, Query(description="An id of the list; of Anthropic's form")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Of Anthropic's form")]


def page_of(
    known: Mapping[str, Any], limit: int, after: str | None = None, before: str | None = None
) -> dict[str, Any]:
    """Some of a list, in its order, as both APIs have it: `has_more` is in the direction of the
    page. known: by id. after, before: ids. Raises HttpError for unknown ones, and for both."""
    ids, name = list(known), before if after is None else after
    if after is not None and before is not None:
        raise bad_request("Give after_id or before_id, not both.", "before_id", "invalid_value")
    if name is not None:
        if name not in known:
            param = "before_id" if after is None else "after"
            raise bad_request(f"There is no '{name}' in this list.", param, "invalid_value")
        start = ids.index(name)
        ids = ids[:start] if after is None else ids[start + 1 :]
    page = ids[-limit:] if before is not None else ids[:limit]
    return {
        "data": [known[each] for each in page],
        "first_id": page[0] if page else None,
        "last_id": page[-1] if page else None,
        "has_more": len(ids) > limit,
    }
