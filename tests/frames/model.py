"""A model that is a function of the question and the values, and the verbs without SQL."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from math import inf, log
from typing import Any

from relquery.prompt import Answer, Finish

Row = dict[str, Any]
_LABELS = re.compile(r"\nAnswer (.+) or (.+)\.$")


def chance(query: str, fields: object) -> float:
    """A number from 0 to 1 that depends on the question and the values, in any order of fields."""
    text = json.dumps([query, fields], sort_keys=True, ensure_ascii=False)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) / 2**32


def answer(query: str, fields: Mapping[str, Any]) -> str | Answer:
    """Of labels the one that chance takes; JSON if it is asked for; else the values themselves."""
    luck = chance(query, fields)
    if query.endswith("\nAnswer Yes or No."):
        scores = {"Yes": log(luck + 1e-9), "No": log(1 - luck + 1e-9)}
        return Answer("Yes" if luck > 0.5 else "No", Finish.STOP, scores=scores)
    if "\nAnswer in JSON" in query:
        found = extracted(fields)
        stars = found["stars"] if "INTEGER" in query else f"{found['stars']} of 10"
        return json.dumps(found | {"stars": stars})
    if said := _LABELS.search(query):
        labels = [*said[1].split(", "), said[2]]
        return str(labels[int(luck * len(labels))])
    return mapped(query, fields)


def mapped(query: str, fields: Mapping[str, Any] | list[Any]) -> str:
    """What the model writes: the values, and a letter that depends on the question."""
    values = fields.values() if isinstance(fields, Mapping) else fields
    said = "+".join(sorted(json.dumps(value) for value in values))
    return f"{chr(97 + int(chance(query, '') * 26))}{said}"


def says_yes(query: str, fields: Mapping[str, Any]) -> bool:
    """Whether the model says yes to a question."""
    return chance(f"{query}\nAnswer Yes or No.", fields) > 0.5


def asked(langex: str, row: Row) -> tuple[str, Row]:
    """The prompt of an instruction, and the fields that it names."""
    names = re.findall(r"\{(.*?)\}", langex)
    return re.sub(r"\{(.*?)\}", r'"\1"', langex), {name: row[name] for name in names}


def claim(langex: str) -> str:
    """As a question."""
    return langex if langex.endswith("?") else f"Is this true? {langex}"


def is_asked(fields: Mapping[str, Any]) -> bool:
    """Whether a row is asked about: not where all is NULL."""
    return not fields or any(value is not None for value in fields.values())


def sem_filter(rows: list[Row], langex: str) -> list[Row]:
    return [
        row
        for row in rows
        if is_asked(asked(langex, row)[1]) and says_yes(*asked(claim(langex), row))
    ]


def with_answer(rows: list[Row], langex: str, name: str) -> list[Row]:
    """What `sem_filter` with `output` gives."""

    def said(row: Row) -> bool | None:
        return bool(sem_filter([row], langex)) if is_asked(asked(langex, row)[1]) else None

    return [row | {name: said(row)} for row in rows]


def sem_map(rows: list[Row], langex: str, name: str) -> list[Row]:
    def said(row: Row) -> str | None:
        query, fields = asked(langex, row)
        return mapped(query, fields) if is_asked(fields) else None

    return [row | {name: said(row)} for row in rows]


def sem_classify(rows: list[Row], langex: str, labels: list[str], name: str) -> list[Row]:
    def label(row: Row) -> str | None:
        query, fields = asked(langex, row)
        if not is_asked(fields):
            return None
        return str(answer(f"{query}\nAnswer {' or '.join(labels)}.", fields))

    return [row | {name: label(row)} for row in rows]


def sem_extract(rows: list[Row], column: str) -> list[Row]:
    return [row | extracted({column: row[column]}) for row in rows]


def extracted(fields: object) -> Row:
    """What the model reads out of values, whatever it is asked."""
    if isinstance(fields, Mapping) and not is_asked(fields):
        return {"tag": None, "stars": None}
    luck = chance("", fields)
    return {"tag": f"t{int(luck * 5)}", "stars": int(luck * 10)}


def sem_topk(rows: list[Row], langex: str, k: int, by: str | None = None) -> list[Row]:
    def score(row: Row) -> float:
        query, fields = asked(f"Is this a good match for: {langex.removesuffix('?')}?", row)
        return -chance(f"{query}\nAnswer Yes or No.", fields) if is_asked(fields) else inf

    if by is None:
        return sorted(rows, key=score)[:k]
    groups = in_order({row[by] for row in rows})
    return [
        row
        for group in groups
        for row in sorted((row for row in rows if row[by] == group), key=score)[:k]
    ]


def in_order(keys: set[Any]) -> list[Any]:
    """Keys of groups, NULL last."""
    return sorted(keys, key=lambda key: (key is None, key))


def sem_agg(rows: list[Row], column: str, by: str | None = None) -> list[Row]:
    query = f'Sum up "{column}".'

    def whole(group: list[Row]) -> str | None:
        texts = [row[column] for row in group if row[column] is not None]
        return mapped(query, texts) if texts else None

    if by is None:
        return [{"_output": whole(rows)}]
    return [
        {by: key, "_output": whole([row for row in rows if row[by] == key])}
        for key in in_order({row[by] for row in rows})
    ]


def sem_join(left: list[Row], right: list[Row], holds: Callable[[Row, Row], bool]) -> list[Row]:
    return [one | other for one in left for other in right if holds(one, other)]
