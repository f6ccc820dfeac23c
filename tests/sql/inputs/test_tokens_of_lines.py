"""Lines take hardly more tokens than the text of the fields, with the names said once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from tokenizers import Tokenizer

import relquery
from benchmarks.reorder.tokens import llama3
from relquery.config import PromptForm
from relquery.demo.files import table_path
from relquery.prompt import Role
from relquery.sql.binder.call import Task
from relquery.sql.inputs.cells import Cells, Form
from relquery.sql.inputs.inputs import Inputs, Question
from tests.data import data_path
from tests.sql.fakes import text_of

ROWS = 120
MOST = 1.03
"""Tokens of the data of a prompt for each token of its fields, one to a line."""
Count = Callable[[list[str]], int]


def demo_tokens(texts: list[str]) -> int:
    path = Path(relquery.__file__).parent / "demo" / "model" / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    return sum(len(one.ids) for one in tokenizer.encode_batch(texts, add_special_tokens=False))


def llama3_tokens(texts: list[str]) -> int:
    encode = llama3(data_path("tokenizers/llama3_tokenizer.model"))
    assert encode is not None
    return sum(map(len, encode(texts)))


def fields_of(table: pa.Table) -> list[list[str | None]]:
    """The cells of some rows as texts."""
    columns = table.slice(0, ROWS).columns
    return [[None if cell is None else str(cell) for cell in one.to_pylist()] for one in columns]


def data_of(names: list[str], columns: list[list[str | None]], form: PromptForm) -> list[str]:
    """What is sent after the query, the names and the system text, for each distinct row."""
    arrays = [pa.array(one, pa.large_string()) for one in columns]
    table = pa.table(arrays, names=[str(at) for at in range(len(arrays))])
    count = table.num_rows
    cells = Cells(
        tuple(names),
        tuple[Form, ...](["string"] * len(names)),
        np.arange(count),
        lambda rows: table.take(pa.array(rows)),
    )
    inputs = Inputs.of(Question("", Task(("Why?",), form=form), count, cells))
    every = np.arange(inputs.count)
    schedule = inputs.schedule(every, "tree")
    assert schedule is not None
    sent = inputs.prompts(every[schedule.rows], schedule)
    # The first span of the user's message is the query, and the names of the fields.
    said = ([span for span in prompt if span.role is Role.USER] for prompt in sent)
    return ["".join(map(text_of, spans[1:])) for spans in said]


def check(names: list[str], columns: list[list[str | None]], *counts: Count) -> None:
    rows = dict.fromkeys(zip(*columns, strict=True))
    plain = ["\n".join("null" if cell is None else cell for cell in row) for row in rows]
    as_lines, as_json = (data_of(names, columns, form) for form in ("lines", "json"))
    for count in counts:
        assert count(as_lines) <= MOST * count(plain)
        assert count(as_lines) < count(as_json)


def test_the_bundled_reviews_take_3_percent_more_than_their_fields_at_most() -> None:
    table = pq.read_table(table_path("movies"))
    check(table.column_names, fields_of(table), demo_tokens)


@pytest.mark.data
@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "movies/movies.parquet",
        "beer/beer.csv",
        "beer/ratebeer_10k.parquet",
        "bird/posts_comments.parquet",
        "contributions/contributions.csv",
        "squad/squad_rag5.parquet",
        "squad/squad_contexts.csv",
        "pdmx/sample100_labelled.csv",
    ],
)
def test_real_tables_take_3_percent_more_than_their_fields_at_most(name: str) -> None:
    path = data_path(name)
    options = csv.ParseOptions(newlines_in_values=True)
    table = (
        csv.read_csv(path, parse_options=options) if path.suffix == ".csv" else pq.read_table(path)
    )
    check(table.column_names, fields_of(table), demo_tokens, llama3_tokens)


@pytest.mark.data
@pytest.mark.long
@pytest.mark.parametrize("name", ["movies/movies.parquet", "squad/squad_contexts.csv"])
def test_long_texts_alone_take_3_percent_more_than_they_have_at_most(name: str) -> None:
    path = data_path(name)
    table = csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)
    long = max(table.column_names, key=lambda one: len(str(table[one][0])))
    columns = [fields_of(table.select([long]))[0]]
    texts = list(dict.fromkeys(cell or "" for cell in columns[0]))
    assert llama3_tokens(data_of([long], columns, "lines")) <= MOST * llama3_tokens(texts)
