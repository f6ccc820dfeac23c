"""What all request bodies have in common: fields that are not supported are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from relquery.errors import did_you_mean
from relquery.serve.errors import HttpError, not_supported

Neutral = tuple[Any, ...]
"""Values with which a field that is not supported asks for nothing."""
NOTHING: Neutral = (None,)
OFF: Neutral = (None, False)
NONE_OF: Neutral = (None, [], {})
ZERO: Neutral = (None, 0)
ANY = object()
"""In place of Neutral: whatever the value, it changes no answer."""


def _whole_number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole_number)
"""Of a field that is an integer: JSON has one kind of numbers, so 2.0 is one too."""
Integer = Annotated[int, WHOLE]


class Body(BaseModel):
    """The body of a request. Values of another type than a field has are refused.

    ACCEPTED: further fields, and the values with which they are accepted; they do nothing.
    """

    model_config = ConfigDict(extra="allow", strict=True)
    ACCEPTED: ClassVar[Mapping[str, Any]] = {}

    @model_validator(mode="after")
    def _refuse(self) -> Body:
        for name, value in (self.model_extra or {}).items():
            if name not in self.ACCEPTED:
                known = [*type(self).model_fields, *self.ACCEPTED]
                hint = did_you_mean(name, known)
                raise HttpError(400, f"The field '{name}' is not known.{hint}", "unknown", name)
            neutral = self.ACCEPTED[name]
            if neutral is not ANY and not any(_same(value, each) for each in neutral):
                raise not_supported(name)
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The schema, with the fields of ACCEPTED and without others."""
        found = handler.resolve_ref_schema(handler(core_schema))
        fields = found.setdefault("properties", {})
        for name, neutral in cls.ACCEPTED.items():
            fields[name] = {} if neutral is ANY else {"enum": list(neutral)}
        return found | {"additionalProperties": False}


def example(body: dict[str, Any]) -> ConfigDict:
    """The `model_config` of a body, for the OpenAPI document to show this one."""
    return ConfigDict(json_schema_extra={"examples": [body]})


def _same(value: Any, other: Any) -> bool:
    """Whether they are one value in JSON, where false is not 0."""
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


class Inner(BaseModel):
    """An object in a body: fields that it does not have are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Declared(Inner):
    """What a client declares about the relQuery that a request belongs to.

    id: the same for all requests of the relQuery. rows: how many they will be. deadline: seconds
    from the first of them in which all must be answered.
    """

    id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    rows: Annotated[int, Field(ge=1), WHOLE] | None = None
    deadline: Annotated[float, Field(gt=0)] | None = None
