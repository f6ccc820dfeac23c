"""The page for users holds what it says."""

from __future__ import annotations

import re
from pathlib import Path

from relquery.ir.forms.text import parse_tree
from relquery.spans.result import SpanResult

PAGE = (Path(__file__).parents[2] / "docs" / "spans.md").read_text(encoding="utf-8")


def test_the_first_example_runs() -> None:
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code is not None
    names: dict[str, object] = {}
    exec(code[1], names)
    result = names["result"]
    assert isinstance(result, SpanResult)
    assert result.text
    assert len(result.report.generations) == 5


def test_the_example_in_the_text_form_is_a_query() -> None:
    text = re.search(r"best\.span\n(generate.*?)\$ ", PAGE, re.DOTALL)
    assert text is not None
    assert str(parse_tree(text[1])) == text[1].rstrip()
