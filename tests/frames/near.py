"""Functions for near texts, by the letters that two texts share."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from relquery.connection import Connection

_GROUPS = 'STRUCT("text" VARCHAR, "first" VARCHAR)[]'

_PAIRS = 'STRUCT("text" VARCHAR, "other" VARCHAR, score DOUBLE)[]'


def install(con: Connection) -> None:
    """Give a connection the functions. Texts are near if they have many letters in common."""
    for name, function, kind in (
        ("ai_similarity", _similarity, "DOUBLE"),
        ("ai_nearest", _nearest, _PAIRS),
        ("ai_duplicates", _duplicates, _GROUPS),
    ):
        con.database.install_function(name, _of_columns(function), kind)


def _of_columns(function: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    """The function for any number of columns, as DuckDB is given ours."""

    def called(*columns: pa.ChunkedArray) -> pa.Array:
        return function(*columns)

    return called


def similarity(one: str, other: str) -> float:
    """Of two texts, 0 to 1."""
    a, b = set(one.lower()), set(other.lower())
    return round(len(a & b) / (len(a) * len(b)) ** 0.5, 5) if a and b else float(a == b)


def groups(texts: list[str], threshold: float) -> dict[str, str]:
    """The first text of the group of each text: the first one that begins a group and is near."""
    first: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        leaders = dict.fromkeys(first.values())
        near = (one for one in leaders if similarity(one, text) >= threshold)
        first[text] = next(near, text)
    return first


def _duplicates(texts: pa.ChunkedArray, threshold: pa.ChunkedArray) -> pa.Array:
    kind = pa.list_(pa.struct([("text", pa.string()), ("first", pa.string())]))
    rows = zip(texts.to_pylist(), threshold.to_pylist(), strict=True)
    found = [
        [{"text": text, "first": first} for text, first in groups(row, float(least)).items()]
        for row, least in rows
    ]
    return pa.array(found, kind)


def _similarity(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.Array:
    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return pa.array([similarity(*pair) for pair in pairs], pa.float64())


def nearest(text: str, others: list[str], k: int) -> list[str]:
    """The k texts that are nearest to a text, best first; of equally near ones the first."""
    distinct = dict.fromkeys(others)
    return sorted(distinct, key=lambda other: -similarity(text, other))[:k]


def _nearest(texts: pa.ChunkedArray, others: pa.ChunkedArray, k: pa.ChunkedArray) -> pa.Array:
    kind = pa.list_(
        pa.struct([("text", pa.string()), ("other", pa.string()), ("score", pa.float64())])
    )
    rows = zip(texts.to_pylist(), others.to_pylist(), k.to_pylist(), strict=True)
    found = [
        [
            {"text": text, "other": other, "score": similarity(text, other)}
            for text in dict.fromkeys(row)
            for other in nearest(text, sorted(them), count)
        ]
        for row, them, count in rows
    ]
    return pa.array(found, kind)
