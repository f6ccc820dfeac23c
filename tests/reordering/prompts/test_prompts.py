"""Prompts hold every cell once, and are those that the report measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.config import ORDERS, Order
from relquery.errors import ConfigError
from relquery.lazy import AT_ONCE
from relquery.prices.table import PRICES
from relquery.reordering.prompts.prompts import Prompts, Template
from relquery.reordering.reorder import reorder
from relquery.reordering.schedule import Schedule
from tests.reordering import reference
from tests.reordering.strategies import PAID, WEIGHTS, letters, tables

TEMPLATES = st.sampled_from(
    [
        Template(),
        Template("Is it?"),
        Template("Is it?\n{fields}\nYes or {{No}}."),
        Template("{fields}\n", system="Be brief."),
        Template("Q: {fields}", system="Be {brief}.", field="<{name}>{value}</{name}>"),
    ]
)


@given(tables(bags=True), st.sampled_from(ORDERS), st.sampled_from(WEIGHTS), TEMPLATES)
def test_every_row_is_one_prompt_with_every_cell_once(
    table: reference.Table, method: Order, weight: Any, template: Template
) -> None:
    schedule = reorder(table.columns, method, (), table.bags, weight, tokenizer=letters)
    prompts = schedule.prompts(template)
    assert len(prompts) == len(table.cells)
    assert sorted(prompt.row for prompt in prompts) == list(range(len(table.cells)))
    for prompt, columns in zip(prompts, schedule.fields.tolist(), strict=True):
        labels = {c: table.label(c).removesuffix(": ") for c in columns}
        lines = [template.line(labels[c], table.cells[prompt.row][c] or "") for c in columns]
        assert prompt.text == template.head + "".join(lines) + template.tail
        assert prompt.columns == tuple(table.names[c] for c in columns)
        assert [prompt.text[begin:end] for begin, end in prompt.spans] == lines
        assert prompt.system == template.system


@given(tables(bags=True), st.sampled_from(["tree", "original"]), st.sampled_from(["", "Is it?\n"]))
def test_the_bill_of_the_prompts_is_that_of_the_report(
    table: reference.Table, method: Order, text: str
) -> None:
    schedule = reorder(table.columns, method, (), table.bags, PAID, tokenizer=letters, prefix=text)
    prompts = schedule.prompts(text)
    assert schedule.report.bill is not None
    assert prompts.bill is not None
    assert prompts.bill.breakpoints == schedule.report.bill.breakpoints
    assert prompts.bill.usd == schedule.report.bill.usd
    for prompt, marks in zip(prompts, prompts.bill.breakpoints, strict=True):
        assert [len("".join(prompt.parts[:b])) for b in prompt.breakpoints] == list(marks)


def test_breakpoints_consider_the_text_around_the_fields() -> None:
    table = {"a": ["one", "one", "two"], "b": ["x", "y", "z"]}
    schedule = reorder(table, "original", weight=PAID, tokenizer=letters)
    plain, longer = schedule.prompts(""), schedule.prompts("Is it?\n{fields}\nYes or No?")
    assert [prompt.breakpoints for prompt in plain] == [(2,), (2,), ()]
    assert [prompt.breakpoints for prompt in longer] == [(1, 2), (1, 2), (1,)]
    alike = reorder({"a": ["one", "one"]}, "original", weight=PAID, tokenizer=letters)
    assert [prompt.breakpoints for prompt in alike.prompts("{fields}\nYes?")] == [(3,), (3,)]
    by_system = schedule.prompts(Template("{fields}", system="Be brief."))
    assert [prompt.breakpoints for prompt in by_system] == [(1, 2), (1, 2), (1,)]


def test_another_price_can_be_given() -> None:
    schedule = reorder({"a": ["x" * 2000] * 2}, "original", tokenizer=letters)
    assert [prompt.breakpoints for prompt in schedule.prompts("")] == [(), ()]
    prompts = schedule.prompts("", price="claude-sonnet-5")
    assert [prompt.breakpoints for prompt in prompts] == [(2,), (2,)]
    assert schedule.prompts("", price=PRICES["gpt-4o-mini"]).bill is None
    with pytest.raises(ConfigError, match="Did you mean 'claude-sonnet-5'"):
        schedule.prompts("", price="claude-sonet-5")
    with pytest.raises(ConfigError, match=r"price is 5; it must be an rq\.Price"):
        schedule.prompts("", price=5)  # type: ignore[arg-type]


ODD: list[dict[str, list[str | None]]] = [
    {},
    {"a": []},
    {"a": [None]},
    {"a": ["x", "x"], "b": [None, ""]},
    {"{a}": ["{x}", "{fields}"], "b}": ["}\n{", '"']},
    {"": ["", "x", None]},
]


def test_small_and_odd_tables_have_prompts() -> None:
    for table in ODD:
        schedule = reorder(table, weight=PAID, tokenizer=letters)
        found = {prompt.row: prompt for prompt in schedule.prompts("Q\n{fields}\nA")}
        assert sorted(found) == list(range(len(next(iter(table.values()), []))))
        for row, prompt in found.items():
            first, *lines, last = prompt.parts
            named = (
                (f"{name}: " if name else "", cells[row] or "") for name, cells in table.items()
            )
            assert set(lines) == {f"{label}{value}\n" for label, value in named}
            assert (first, last) == ("Q\n", "A")


def test_prompts_are_a_sequence() -> None:
    count = AT_ONCE + 5
    schedule = reorder({"a": [f"cell {i}" for i in range(count)]}, "original")
    prompts = schedule.prompts("")
    assert isinstance(prompts, Prompts)
    assert prompts[-1].text == f"a: cell {count - 1}\n"
    assert [prompt.row for prompt in prompts[1022:1026]] == [1022, 1023, 1024, 1025]
    assert [prompt.row for prompt in prompts] == list(range(count))
    assert prompts.rows.tolist() == list(range(count))
    with pytest.raises(IndexError):
        prompts[count]


def test_part_of_a_schedule_has_the_prompts_of_its_rows() -> None:
    schedule = reorder({"a": ["x", "y", "z"]}, "original").part(np.array([2, 0]))
    assert [(prompt.row, prompt.text) for prompt in schedule.prompts("")] == [
        (2, "a: z\n"),
        (0, "a: x\n"),
    ]


def test_a_schedule_without_its_table_has_no_prompts() -> None:
    made = reorder({"a": ["x"]}, "original")
    with pytest.raises(ConfigError, match=r"Make it with rq.reorder\(table\)"):
        Schedule(made.rows, made.fields, made.report).prompts("")
