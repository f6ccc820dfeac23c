"""Vectors as an endpoint sent them, and what is wrong with a reply that has none."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from relquery.arrays import Float32s
from relquery.backends.wires.errors import short
from relquery.errors import RequestError, type_of
from relquery.retrieval.embedder import as_vectors

_SHOWN = 5  # indices
_OF_ERRORS = ("error", "detail", "message")


def to_vectors(reply: str, texts: Sequence[str], name: str, url: object) -> Float32s:
    """(texts, dimensions), from the JSON text of a reply. Raises RequestError.

    name: of the embedder. url: of the server.
    """
    data = _data(reply, name, url)
    if len(data) != len(texts):
        raise RequestError(
            f"The embedder {name} returned {len(data)} vectors for {len(texts)} texts."
        )
    indices = [one.get("index") for one in data]
    places = {at: place for place, at in enumerate(indices) if type(at) is int}
    if sorted(places) != list(range(len(texts))):
        some = ", ".join(map(str, indices[:_SHOWN])) + (", ..." if len(data) > _SHOWN else "")
        raise RequestError(
            f"The embedder {name} returned vectors with the indices {some}; expected each of 0 to "
            f"{len(texts) - 1} once, as they say which text a vector is of."
        )
    found = [_numbers(data[places[at]].get("embedding")) for at in range(len(texts))]
    vectors = as_vectors(found, len(texts), name)
    for at in np.flatnonzero(~vectors.any(axis=1)).tolist():
        if texts[at].strip():
            raise RequestError(
                f"The embedder {name} returned a vector of zeros for the text {excerpt(texts[at])}."
            )
    return vectors


def excerpt(text: str) -> str:
    """The first characters of a text, in quotes."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _data(reply: str, name: str, url: object) -> list[dict[str, Any]]:
    try:
        body = json.loads(reply)
    except (ValueError, RecursionError):
        raise _unlike(name, url, f"no JSON but {short(reply)!r}") from None
    if not isinstance(body, dict):
        raise _unlike(name, url, f"{type_of(body)} of JSON in place of an object")
    data = body.get("data")
    if isinstance(data, list) and data and all(isinstance(one, dict) for one in data):
        return data
    said = next((body[key] for key in _OF_ERRORS if body.get(key)), None)
    if said is None:
        raise _unlike(name, url, f"no vectors but {short(reply)}")
    said = said.get("message", said) if isinstance(said, dict) else said
    raise RequestError(
        f"The embedder {name} failed. The server answered: {short(str(said)).rstrip('.')}."
    )


def _unlike(name: str, url: object, got: str) -> RequestError:
    return RequestError(
        f"The embedder {name} returned {got}. Check that {url} has embeddings of the OpenAI form; "
        "base_url usually ends in /v1."
    )


def _numbers(embedding: object) -> object:
    """Numbers in base64 as an array, others as they are."""
    if not isinstance(embedding, str):
        return embedding
    try:
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
    except ValueError:
        return embedding
