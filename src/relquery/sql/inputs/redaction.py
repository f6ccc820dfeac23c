"""Cells whose personal data is not sent, and answers with that data back in its place.

A row's cells have placeholders with numbers, the same for the same text. So prompts and the ledger
hold none of the data, and rows that differ in it alone are one request. What answers say of the
placeholders is turned back for each row, from its own cells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from relquery.arrays import Int64s
from relquery.pii.patterns import OF_MODELS
from relquery.pii.placeholders import Placeholders, has_placeholder, put_back
from relquery.prompt import Answer, Finish
from relquery.sql.binder.call import Task
from relquery.sql.binder.text_functions import kinds_in
from relquery.sql.inputs.cells import Cells, Form
from relquery.sql.types.leaves import Number, dumped
from relquery.sql.types.shape import InvalidAnswerError


def hidden(cells: Cells, task: Task) -> Cells:
    """Cells with placeholders in place of the personal data that a call must not send."""
    if not task.redact:
        return cells

    def read(rows: Int64s) -> pa.Table:
        table = cells.read(rows)
        texts = [text for text, _ in _rows(table, cells, task)]
        columns = zip(*texts, strict=True) if texts else [()] * table.num_columns
        arrays = map(pa.array, columns, table.schema.types)
        return pa.table(list(arrays), names=table.column_names)

    return replace(cells, read=read)


def completed(
    answers: Sequence[Answer], of_row: Int64s, cells: Cells, task: Task
) -> tuple[Sequence[Answer], Int64s]:
    """Answers with each row's own data in place of placeholders, and the answer of each row.

    of_row: (rows,), as in Replies. cells: of these rows, with their data.
    """
    if not (task.redact or task.kind == "redact") or not len(of_row):
        return answers, of_row
    has_data = [_needs_row(answer, task) for answer in answers]
    wanted = [row for row, place in enumerate(of_row.tolist()) if place >= 0 and has_data[place]]
    full, of_row = list(answers), of_row.copy()
    part = cells.part(np.array(wanted, np.int64))
    rows = _rows(part.read(part.rows), part, task) if wanted else iter(())
    for row, (texts, placeholders) in zip(wanted, rows, strict=True):
        answer = full[of_row[row]]
        of_row[row] = len(full)
        if task.kind == "redact":
            full.append(_redacted(answer, texts[0] or "", placeholders, task))
        else:
            full.append(_with_data(answer, placeholders, task))
    return full, of_row


def _needs_row(answer: Answer, task: Task) -> bool:
    if answer.text is None or answer.error or task.sampling.labels:
        return False
    return task.kind == "redact" or has_placeholder(answer.text)


def _rows(
    table: pa.Table, cells: Cells, task: Task
) -> Iterator[tuple[list[str | None], Placeholders]]:
    """(texts to send, their placeholders) of each row. A prompt has no name that tells its kind."""
    names = ("", *cells.names[1:]) if task.is_by_row else cells.names
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        placeholders = Placeholders(task.redact or (), filter(None, row))
        fields = zip(row, cells.forms, names, strict=True)
        yield [_written(*field, placeholders) for field in fields], placeholders


def _written(cell: str | None, form: Form, name: str, placeholders: Placeholders) -> str | None:
    if cell is None or form == "string":
        return None if cell is None else placeholders.hide(cell, name)
    try:
        value = json.loads(cell, parse_int=Number, parse_float=Number)
    except ValueError:  # a float that JSON does not have
        return cell
    changed = _inside(value, name, placeholders)
    return cell if changed == value else dumped(changed)


def _inside(value: Any, name: str, placeholders: Placeholders) -> Any:
    """A JSON value with placeholders; a number that is personal data becomes a text."""
    if isinstance(value, dict):
        return {key: _inside(item, key, placeholders) for key, item in value.items()}
    if isinstance(value, list):
        return [_inside(item, name, placeholders) for item in value]
    if not isinstance(value, str):
        return value
    text = placeholders.hide(value, name)
    return value if text == value else text


def _with_data(answer: Answer, placeholders: Placeholders, task: Task) -> Answer:
    originals = placeholders.originals
    if task.output is not None or task.sampling.schema is not None:  # inside of JSON's quotes
        quoted = ((name, json.dumps(text, ensure_ascii=False)) for name, text in originals.items())
        originals = {name: text[1:-1] for name, text in quoted}
    return replace(answer, text=put_back(answer.text or "", originals))


# AI_REDACT


def _redacted(answer: Answer, text: str, placeholders: Placeholders, task: Task) -> Answer:
    """The text of a field without what a model has found in it, and without what rules had."""
    assert task.output is not None
    if answer.finish is Finish.LENGTH:
        return answer
    try:
        spans = task.output.read(answer.text or "")
    except InvalidAnswerError as error:
        return replace(answer, finish=Finish.ERROR, error=str(error))
    pairs = ((span["text"].strip(), span["category"]) for span in spans)
    for value, category in sorted(pairs, key=lambda pair: -len(pair[0])):
        if value and not has_placeholder(value) and value.upper() not in OF_MODELS:
            form = rf"(?<!\w){re.escape(value)}(?!\w)"
            text = re.sub(form, f"[{category}]", text)
    wanted = kinds_in(task.output)
    shown = {
        name: f"[{kind}]" if (kind := name.rpartition("_")[0]) in wanted else original
        for name, original in placeholders.originals.items()
    }
    return replace(answer, text=put_back(text, shown))
