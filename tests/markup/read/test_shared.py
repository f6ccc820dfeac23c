"""Schemas that others wrote load, or are refused with a reason that a person can act on."""

from __future__ import annotations

import pytest

from relquery.errors import MarkupError
from relquery.markup.read.imports import MarkupPrompt
from relquery.markup.read.schema import Schema
from tests.data import data_path

pytestmark = pytest.mark.data
REFUSED = {
    "code_generation_game.xml": r"Write &lt; for <.*line 167, column 20",
    "schema_long_task_1.xml": r"<system> is inside a module. Put the module inside.*line 26",
    "schema_code_generation.xml": r"<system> is inside a module. Put the module inside.*line 26",
    "prompt_mbti.xml": "begins with <schema name=",
}


def test_schemas_load_or_are_refused_with_a_reason() -> None:
    files = sorted(data_path("pml").rglob("*.xml"))
    assert len(files) > len(REFUSED)
    for file in files:
        if file.name in REFUSED:
            with pytest.raises(MarkupError, match=REFUSED[file.name]):
                Schema.load(file)
        else:
            assert Schema.load(file).name


def test_a_prompt_that_others_wrote_fits_its_schema() -> None:
    folder = data_path("pml/benchmark/schema/test")
    for name in ("schema_mbti.xml", "schema_mbti_short.xml"):
        schema = Schema.load(folder / name)
        made = MarkupPrompt.parse((folder / "prompt_mbti.xml").read_text(), schema)
        assert list(made.imports()) == [("E",), ("N",), ("T",), ("P",)]
