"""Fields that say how answers are chosen, in our own bodies."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field

from relquery.prompt import Sampling
from relquery.serve.body import WHOLE, Body, Declared, Integer

Label = Annotated[str, Field(min_length=1)]
Stops = Annotated[list[Label], Field(max_length=16)]


class Sampled(Body):
    """Sampling of the calls that do not set it; see Sampling. schema: a JSON Schema, or its text.

    model: as clients call it; there is only one.
    """

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1), WHOLE] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0), WHOLE] | None = None
    seed: Integer | None = None
    stop: Stops | Label | None = None
    labels: Annotated[list[Label], Field(min_length=1, max_length=1000)] | None = None
    schema_: dict[str, Any] | str | None = Field(None, alias="schema")
    relquery: Declared | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What is set, as keywords of Connection.sql and of Sampling."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        schema = self.schema_
        given = {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "seed": self.seed,
            "stop": stop or None,
            "labels": None if self.labels is None else tuple(self.labels),
            "schema": schema if schema is None or isinstance(schema, str) else json.dumps(schema),
        }
        return {name: value for name, value in given.items() if value is not None}

    @property
    def sampling(self) -> Sampling:
        """The same as an object. Raises ConfigError."""
        return Sampling(**self.settings)
