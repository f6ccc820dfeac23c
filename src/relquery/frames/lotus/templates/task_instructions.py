"""Rows as text in LOTUS's own formats. The verbs send rows in relquery's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.sax.saxutils import escape

import pandas as pd

from relquery.frames.lotus.settings import SHARED
from relquery.frames.lotus.types import SerializationFormat


def df2text(df: pd.DataFrame, cols: Sequence[str]) -> list[str]:
    """Each row as text: those of the columns that the table has."""
    names = [name for name in cols if name in df.columns]
    if not names:
        return [""] * len(df)
    if SHARED.serialization_format is SerializationFormat.JSON:
        lines = df[names].to_json(orient="records", lines=True)
        return str(lines).splitlines()
    write = _as_xml if SHARED.serialization_format is SerializationFormat.XML else _as_lines
    rows = df[names].astype(object).itertuples(index=False)
    return [write(names, [str(value) for value in row]) for row in rows]


def _as_lines(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = zip(names, values, strict=True)
    return "".join(f"[{name.capitalize()}]: «{value}»\n" for name, value in pairs)


def _as_xml(names: Sequence[str], values: Sequence[str]) -> str:
    tags = [re.sub(r"\W", "", name) for name in names]
    pairs = zip(tags, map(escape, values), strict=True)
    return f"<row>{''.join(f'<{tag}>{value}</{tag}>' for tag, value in pairs)}</row>"
