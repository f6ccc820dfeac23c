"""What all request bodies have in common: fields that are not supported are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

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


class Body(BaseModel):
    """The body of a request.

    ACCEPTED: further fields, and the values with which they are accepted; they do nothing.
    """

    model_config = ConfigDict(extra="allow", strict=False)
    ACCEPTED: ClassVar[Mapping[str, Any]] = {}

    @model_validator(mode="after")
    def _refuse(self) -> Body:
        for name, value in (self.model_extra or {}).items():
            if name not in self.ACCEPTED:
                known = [*type(self).model_fields, *self.ACCEPTED]
                hint = did_you_mean(name, known)
                raise HttpError(400, f"The field '{name}' is not known.{hint}", "unknown", name)
            neutral = self.ACCEPTED[name]
            if neutral is not ANY and not any(value == each for each in neutral):
                raise not_supported(name)
        return self


class Inner(BaseModel):
    """An object in a body: fields that it does not have are refused."""

    model_config = ConfigDict(extra="forbid")


class Declared(Inner):
    """What a client declares about the relQuery that a request belongs to.

    id: the same for all requests of the relQuery. rows: how many they will be. deadline: seconds
    from the first of them in which all must be answered.
    """

    id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    rows: Annotated[int, Field(ge=1)] | None = None
    deadline: Annotated[float, Field(gt=0)] | None = None
