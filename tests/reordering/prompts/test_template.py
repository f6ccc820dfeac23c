"""Templates: where fields go, braces, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from relquery.errors import ConfigError
from relquery.reordering.prompts.prompts import Template
from tests.cases import values

PLACES: list[tuple[str, str, str]] = values(__file__, "places.txt")


def test_fields_go_where_the_template_says_or_after_it() -> None:
    for text, head, tail in PLACES:
        template = Template(text, system="Be brief.")
        assert (template.head, template.tail) == (head, tail)
        assert template.prefix == "Be brief." + head


FIELDS: list[tuple[str, str, str, str]] = [
    ("{name}: {value}", "a{b}", "{c}\n{name}", "a{b}: {c}\n{name}\n"),
    ("{name}: {value}", "", "x", "x\n"),
    ("<{name}>{value}</{name}>", "a", "{value}", "<a>{value}</a>\n"),
    ("{{{value}}}", "a", "x", "{x}\n"),
]


def test_a_field_is_one_line_in_its_form() -> None:
    for field, name, value, line in FIELDS:
        assert Template("", field=field).line(name, value) == line


WRONG: list[tuple[dict[str, Any], str]] = values(__file__, "template_refused.txt")


def test_other_templates_are_refused_with_the_remedy() -> None:
    for given, message in WRONG:
        with pytest.raises(ConfigError, match=message):
            Template(**given)


def test_a_text_is_taken_as_a_template() -> None:
    assert Template.of("Is it?") == Template("Is it?")
    with pytest.raises(ConfigError, match=r"template is an int; .* or an rq\.Template"):
        Template.of(5)
