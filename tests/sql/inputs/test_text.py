"""Text says what JSON says: it can be read back, and prompts share as much."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relquery.config import FORMS, PromptForm
from relquery.prompt import Prompt, Role
from relquery.sql.binder.call import Task, label_of
from relquery.sql.inputs.cells import Cells, Form
from relquery.sql.inputs.inputs import Inputs, Question
from tests.sql.fakes import text_of

QUERY = "Which?"
Table = tuple[tuple[str, ...], tuple[Form, ...], list[list[str | None]]]
TEXTS = st.one_of(
    st.text('a:", \n\r\t\u2028\x85[]{}0\\', max_size=8),
    st.sampled_from(
        ["", "null", "NULL", '"', "a: x", "b: ", '"b": x', "x\n", "x\na: y", " x", "ü"]
    ),
)
NAMES = st.one_of(
    st.sampled_from(
        ["a", "b", "movie title", "a: x", "a,b", '"', "null", " c", "é", "a\nb", "\x85"]
    ),
    st.text(min_size=1, max_size=4),
)
NUMBERS = st.sampled_from(["1", "-2.5", "nan", "true", '{"a": "b: x"}', "[1,\n 2]", '"a: "'])


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Names, forms and rows of a table of texts and JSON."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    forms: list[Form] = [draw(st.sampled_from(("string", "json"))) for _ in names]
    cells = [st.none() | (TEXTS if form == "string" else NUMBERS) for form in forms]
    return tuple(names), tuple(forms), draw(st.lists(st.tuples(*cells).map(list), min_size=1))


def inputs_of(
    names: Sequence[str], forms: Sequence[Form], rows: list[list[str | None]], form: PromptForm
) -> Inputs:
    columns = [pa.array([row[at] for row in rows], pa.large_string()) for at in range(len(names))]
    table = pa.table(columns, names=[str(at) for at in range(len(names))])
    cells = Cells(
        tuple(names), tuple(forms), np.arange(len(rows)), lambda some: table.take(pa.array(some))
    )
    return Inputs.of(Question("", Task((QUERY,), form=form), len(rows), cells))


def read(text: str, names: Sequence[str], forms: Sequence[Form]) -> list[tuple[str, str | None]]:
    """(name, cell) of each field in a prompt, by nothing but its text and the names and forms."""
    data = text.removeprefix(f"{QUERY}\n\n")
    if len(names) == 1:
        return [(names[0], value_of(data, forms[0]))]
    label = {label_of(name): name for name in names}
    lines = list[str]()
    for line in data.split("\n"):
        if line.startswith(" "):
            lines[-1] += f"\n{line[1:]}"
        else:
            lines.append(line)
    fields = list[tuple[str, str | None]]()
    for line in lines:
        named = next(one for one in label if line.startswith(f"{one}: "))
        name, value = label[named], line[len(named) + 2 :]
        fields.append((name, value_of(value, forms[list(names).index(name)])))
    return fields


def value_of(text: str, form: Form) -> str | None:
    if text == "null":
        return None
    is_quoted = text.startswith('"') and text.endswith('"')
    return json.loads(text) if form == "string" and is_quoted else text


def sent(cell: str | None, form: Form) -> str | None:
    """What of a cell is sent: in JSON, blanks around a value say nothing."""
    if form == "string" or cell is None:
        return cell
    return f'"{cell}"' if cell == "nan" else cell


def user_text(prompt: Prompt) -> str:
    """The whole of a prompt in text, which is one message; in JSON, without the system's."""
    texts = [text_of(span) for span in prompt if span.role is Role.USER]
    return "".join(texts)


@given(table=tables(), data=st.data())
@example((("a", "b"), ("string", "string"), [["x", "y"], ["b: y", "x"], ["", "null"]]), None)
@example((("a",), ("string",), [['"'], ['"x"'], ['"x" y'], ["x"], ["null"], [None]]), None)
def test_a_prompt_can_be_read_back_in_any_order_of_its_fields(table: Table, data: Any) -> None:
    names, forms, rows = table
    inputs = inputs_of(names, forms, rows, "text")
    every = np.arange(inputs.count)
    width = len(names)
    orders = [
        list(range(width))[::-1] if data is None else data.draw(st.permutations(range(width)))
        for _ in every
    ]
    template = inputs.template
    first = {int(at): row for row, at in reversed(list(enumerate(inputs.of_row)))}
    for at in every.tolist():
        text = user_text(template.prompt(inputs.codes[at].tolist(), orders[at]))
        wanted = [(names[one], sent(rows[first[at]][one], forms[one])) for one in orders[at]]
        assert read(text, names, forms) == wanted


@given(table=tables())
def test_rows_that_differ_in_json_differ_in_text(table: Table) -> None:
    names, forms, rows = table
    as_json, other = (inputs_of(names, forms, rows, one) for one in FORMS)
    assert as_json.of_row.tolist() == other.of_row.tolist()
    assert {span.role for span in other.prompts_as_written()[0]} == {Role.USER}
    texts = [user_text(prompt) for prompt in other.prompts_as_written()]
    assert len(set(texts)) == other.count


@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("de"), st.text("fg", max_size=2)),
        min_size=2,
        max_size=12,
    )
)
def test_neighbours_share_as_many_fields_as_in_json(rows: list[tuple[str, str, str]]) -> None:
    names, forms = ("one", "two", "three"), list[Form](["string"] * 3)
    as_json, as_text = (inputs_of(names, forms, [[*row] for row in rows], form) for form in FORMS)
    every = np.arange(as_json.count)
    schedule = as_json.schedule(every, "tree")
    assert schedule is not None
    places = every[schedule.rows]
    counts = [
        [_fields_shared(one, other) for one, other in pairwise(inputs.prompts(places, schedule))]
        for inputs in (as_json, as_text)
    ]
    assert counts[0] == counts[1]


def _fields_shared(one: Prompt, other: Prompt) -> int:
    """How many spans after the head are the same at the beginning of two prompts."""
    one, other = (tuple(span for span in each if span.role is Role.USER) for each in (one, other))
    assert one[0] == other[0]
    pairs = zip(one[1:], other[1:], strict=False)
    return next((at for at, (left, right) in enumerate(pairs) if left != right), len(one) - 1)


@pytest.mark.parametrize(
    ("cell", "data"),
    [
        (" a: x\n\ny ", " a: x\n\ny "),
        ("null", '"null"'),
        (None, "null"),
        ("", '""'),
        (" \n", '" \\n"'),
        ('"a" b', '"a" b'),
        ('"a"', '"\\"a\\""'),
    ],
)
def test_the_only_field_has_no_name_and_goes_on_to_the_end(cell: str | None, data: str) -> None:
    inputs = inputs_of(("a",), ("string",), [[cell]], "text")
    assert user_text(inputs.prompts_as_written()[0]) == f"Which?\n\n{data}"


@pytest.mark.parametrize("form", FORMS)
def test_a_message_names_the_cells_of_an_input(form: PromptForm) -> None:
    rows: list[list[str | None]] = [["a\nb: c", "nan"], [None, "[1,\n2]"], ['"', None]]
    inputs = inputs_of(("text", "number"), ("string", "json"), rows, form)
    assert [inputs.cells(at) for at in range(3)] == [
        {"text": "a\nb: c", "number": "nan"},
        {"text": None, "number": "[1,\n2]"},
        {"text": '"', "number": None},
    ]
