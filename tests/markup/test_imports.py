"""Prompts: what they import, and why others are refused."""

from __future__ import annotations

import re
import warnings

import pytest

from relquery.errors import MarkupError, PromptWarning
from relquery.markup.imports import Import, MarkupPrompt, New
from relquery.markup.schema import LooseText, Schema
from relquery.prompt import Role
from tests.cases import case_file
from tests.data import data_path
from tests.markup.test_schema import TRAVEL

SCHEMA = Schema.parse(TRAVEL)


def prompt(inside: str) -> MarkupPrompt:
    return MarkupPrompt.parse(f"<prompt schema='travel'>{inside}</prompt>", SCHEMA)


def test_a_prompt_imports_modules_fills_parameters_and_adds_text_anywhere() -> None:
    made = prompt("Well, <plan duration='3 days'>then <abroad/></plan><user>And now?</user>")
    before, plan, after = made.parts
    assert (before, after) == (New("Well, "), New("And now?", Role.USER))
    assert isinstance(plan, Import)
    assert plan.arguments == {"duration": "3 days"}
    assert plan.parts[0] == New("then ")
    assert list(made.imports()) == [("plan",), ("plan", "abroad")]


def test_a_prompt_names_its_schema() -> None:
    other = Schema.parse("<schema name='other'/>")
    text = "<prompt schema='other'>Hello.</prompt>"
    assert MarkupPrompt.parse(text, {"travel": SCHEMA, "other": other}).schema is other


def test_what_does_not_fit_the_schema_is_told_with_its_place() -> None:
    for inside, message, column in case_file(__file__, "imports_refused.txt"):
        with pytest.raises(MarkupError, match=message) as caught:
            prompt(inside)
        assert (caught.value.line, caught.value.column) == (1, int(column))


def test_a_prompt_that_is_none_is_refused() -> None:
    for text, message in case_file(__file__, "prompt_refused.txt"):
        with pytest.raises(MarkupError, match=message):
            MarkupPrompt.parse(text, SCHEMA)


pytestmark = pytest.mark.data
TOLD = {
    "code_generation_game.xml": r"bare < is read as text \(line 167.*Write &lt; for <",
    "schema_long_task_1.xml": r"<system> is inside a module \(line 26\).*Put the module inside",
    "schema_code_generation.xml": r"<system> is inside a module \(line 26\).*Put the module inside",
}


def test_schemas_load_and_what_is_odd_in_them_is_told_of_once() -> None:
    files = sorted(data_path("pml").rglob("schema_*.xml")) + sorted(
        data_path("pml/examples").iterdir()
    )
    assert len(files) > len(TOLD)
    for file in files:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert Schema.load(file).name
        (*said,) = [str(each.message) for each in told]
        assert len(said) == (file.name in TOLD)
        assert all(re.search(TOLD[file.name], each) for each in said)
    with pytest.raises(MarkupError, match="begins with <schema name="):
        Schema.load(data_path("pml/benchmark/schema/test/prompt_mbti.xml"))


def test_raw_code_and_a_message_in_a_module_are_all_there() -> None:
    code = data_path("pml/examples/code_generation_game.xml")
    with pytest.warns(PromptWarning):
        schema = Schema.load(code)
    texts = {path[-1]: module for path, module in schema.modules()}
    said = "".join(part.content for part in texts["map.py"].parts if isinstance(part, LooseText))
    assert "return (0 <= position[0] < self.grid_size and" in said
    with pytest.warns(PromptWarning):
        schema = Schema.load(data_path("pml/benchmark/schema/test/schema_code_generation.xml"))
    assert ("preface", "system2") in dict(schema.modules())


def test_a_prompt_that_others_wrote_fits_its_schema() -> None:
    folder = data_path("pml/benchmark/schema/test")
    for name in ("schema_mbti.xml", "schema_mbti_short.xml"):
        schema = Schema.load(folder / name)
        made = MarkupPrompt.parse((folder / "prompt_mbti.xml").read_text(), schema)
        assert list(made.imports()) == [("E",), ("N",), ("T",), ("P",)]
