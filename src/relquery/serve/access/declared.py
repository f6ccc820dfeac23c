"""What a request's header says of the relQuery that it belongs to."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from relquery.errors import unknown
from relquery.serve.body import Declared
from relquery.serve.errors import HttpError

HEADER = "relquery"


def read_declared(text: str) -> Declared:
    """What a header declares: `{"id": "q7", "rows": 40}` or `id=q7; rows=40; deadline=2.5`.

    Raises HttpError, which names what is wrong.
    """
    fields = _from_json(text) if text.lstrip().startswith("{") else _from_pairs(text)
    for name in fields:
        if name not in Declared.model_fields:
            raise _wrong(unknown("field", name, Declared.model_fields), name)
    try:
        return Declared.model_validate(fields, strict=False)  # what stands in pairs is text
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise _wrong(f"{name} is {fields[name]!r}: {first['msg']}.", name) from None


def _from_json(text: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"It does not parse as JSON: {error}.") from None
    return found


def _from_pairs(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in text.split(";"):
        name, separator, value = (part.strip() for part in pair.partition("="))
        if not separator and not name:
            continue
        if not separator:
            raise _wrong(f"'{name}' has no value. Write id=...; rows=...; deadline=...")
        if name in found:
            raise _wrong(f"{name} is given twice.", name)
        quoted = len(value) > 1 and value[0] == value[-1] == '"'
        found[name] = value[1:-1] if quoted else value
    return found


def _wrong(message: str, name: str = "") -> HttpError:
    param = f"{HEADER}.{name}" if name else HEADER
    return HttpError(400, f"The header '{HEADER}' is wrong. {message}", "invalid_header", param)
