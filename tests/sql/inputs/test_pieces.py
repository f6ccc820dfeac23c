"""Pieces and prompts that are made when they are read."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.ir.lower import lower
from relquery.ir.nodes import Bag, Text
from relquery.sql.inputs import cells as cells_module
from relquery.sql.inputs.cells import JSON, write_pieces
from relquery.sql.inputs.prompt import CallTemplate

TEXTS = st.lists(
    st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]))), unique=True
)


@given(TEXTS, st.integers(1, 5))
def test_pieces_of_texts_are_as_written_one_by_one_and_give_the_cell_back(
    cells: list[str | None], at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells_module, "_AT_ONCE", at_once)
        _check_pieces(cells)


def _check_pieces(cells: list[str | None]) -> None:
    write = partial(JSON.value, "string")
    pieces, merged = write_pieces(pa.array(cells, pa.large_string()), write)
    assert merged is None
    assert list(pieces) == list(map(write, cells))
    assert [json.loads(text) for text in pieces] == cells


def test_null_and_json_null_are_one_piece() -> None:
    cells = pa.array(["1", None, "null"], pa.large_string())
    pieces, merged = write_pieces(cells, partial(JSON.piece, '"a": ', "json"))
    assert list(pieces) == ['"a": 1', '"a": null']
    assert merged is not None
    assert merged.tolist() == [0, 1, 1]


def test_prompts_are_those_of_lowered_rows_however_they_are_read() -> None:
    pieces = [[f'"{name}": "{cell}"' for cell in ("x", "y")] for name in ("a", "b")]
    codes = np.array([[0, 1], [1, 1], [0, 0]], np.int32)
    fields = np.array([[1, 0], [0, 1]], np.int32)
    prompts = CallTemplate(("Why?",), pieces).prompts(codes, np.array([2, 1]), fields)
    for prompt, row, order in zip(prompts, (2, 1), fields.tolist(), strict=True):
        texts = tuple(Text(pieces[at][codes[row, at]]) for at in order)
        assert prompt[2:-1] == lower(Bag(texts, JSON.separator))
    assert list(prompts[1:]) == [prompts[1]] == [prompts[-1]]
    assert len(prompts) == 2
    with pytest.raises(IndexError):
        prompts[2]
