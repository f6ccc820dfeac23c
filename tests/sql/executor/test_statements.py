"""What the model is sent, which calls a query makes, and what becomes of rows without an answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from relquery.connection import Connection
from relquery.errors import PartialResultWarning, PromptTooLongError, PromptWarning
from relquery.prompt import Answer, Finish, Role, Span
from relquery.sql.inputs.prompt import SYSTEM
from tests.sql.conftest import fails_for_dune
from tests.sql.fakes import FakeBackend, Fields
from tests.sql.scripts import Script, scripts

Reference = Callable[[str], list[tuple[Any, ...]]]
NASTY = 'it\'s "quoted" { braces } \\ back\\nslash\nnewline \t 🎉 é \0 nul \u2028 end'


def failing(error: str) -> Callable[[str, Fields], Answer]:
    return lambda query, fields: Answer(None, Finish.ERROR, error)


KNOWN = {
    "fails_for_dune": fails_for_dune, "failing": failing, "PromptTooLongError": PromptTooLongError,
    "SYSTEM": SYSTEM, "Span": Span, "Role": Role,
}  # fmt: skip


@scripts(__file__)
def test_statements(
    script: Script, con: Connection, backend: FakeBackend, reference: Reference
) -> None:
    backend.reverse = True  # answers may come in any order
    script.run(con, backend, reference=reference, **KNOWN)


def test_no_character_is_lost(con: Connection, backend: FakeBackend) -> None:
    con.register("nasty", pa.table({NASTY.replace("\0", ""): [NASTY]}))
    prompt = NASTY.replace("'", "''")
    with pytest.warns(PromptWarning, match="contains {braces}"):
        result = con.sql(f"SELECT LLM('{prompt}', nasty.*) FROM nasty")
    assert backend.asked[0].query == NASTY
    assert backend.asked[0].fields == {NASTY.replace("\0", ""): NASTY}
    assert result.fetchall() == [(NASTY,)]


def test_fields_go_by_their_column_names(con: Connection, backend: FakeBackend) -> None:
    cases = {
        "title, GENRE": ["title", "genre"],
        "f.title, r.id": ["title", "id"],
        "f.id, r.id, text": ["f.id", "r.id", "text"],
        "f.id, f.*": ["id", "title", "genre", "stars", "seen", "tags", "info"],
        "r.*, r.text, text": ["id", "film", "text"],
        "upper(title)": ["upper_title"],
        "f.id + 1, info.year": ["id", "year"],
        "r.* REPLACE (upper(text) AS text)": ["id", "film", "text"],
        "* EXCLUDE (tags, info, id)": ["title", "genre", "stars", "seen", "film", "text"],
        '"my field"': ["my field"],
    }
    calls = ", ".join(f"LLM('{at}', {arguments})" for at, arguments in enumerate(cases))
    named = '(SELECT id AS own, id + 1 AS "my field" FROM films) n ON n.own = f.id'
    rows = f"films f JOIN reviews r ON f.id = r.film JOIN {named}"
    calls = calls.replace("(tags, info, id)", '(tags, info, id, own, "my field")')
    con.sql(f"SELECT {calls} FROM {rows} LIMIT 1", order="original")
    asked = {request.query: list(request.fields) for request in backend.asked}
    assert asked == {str(at): names for at, names in enumerate(cases.values())}


ALL = [1, 2, 3, 4, 5, 6]
OF_ROWS = [
    ("CASE WHEN seen THEN LLM('up', id) END", [1, 3, 6]),
    ("CASE WHEN seen THEN 'x' ELSE LLM('up', id) END", [2, 4, 5]),
    ("CASE WHEN seen THEN 'x' WHEN id > 3 THEN LLM('up', id) ELSE 'y' END", [4, 5]),
    ("CASE WHEN seen THEN 'x' WHEN LLM('up', id) = '4' THEN 'y' END", [2, 4, 5]),
    ("CASE genre WHEN 'drama' THEN LLM('up', id) END", [5, 6]),
    ("if(id < 3, LLM('up', id), 'x')", [1, 2]),
    ("coalesce(title, LLM('up', id))", [5]),
    ("coalesce(LLM('up', id), title)", ALL),
    ("seen OR LLM('up', id) = '1'", [2, 4, 5]),
    ("CASE WHEN seen THEN LLM('up', id) ELSE LLM('up', id) END", ALL),
    ("CASE WHEN seen THEN max(LLM('up', id)) OVER () END", ALL),
    ("CASE WHEN seen THEN LLM('up', id) END || LLM('up', id)", ALL),
    ("CASE WHEN LLM('up', id) > '3' THEN 'a' END", ALL),
]
OF_ALL_ROWS = [
    ("count(*) FILTER (WHERE seen AND LLM('up', id) = '1')", [1, 3, 6]),
    ("max(LLM('up', id)) FILTER (WHERE seen)", [1, 3, 6]),
    ("max(LLM('up', id))", ALL),
]


@pytest.mark.parametrize("expressions", [OF_ROWS, OF_ALL_ROWS])
def test_only_rows_whose_answer_is_read_are_asked(
    expressions: list[tuple[str, list[int]]],
    con: Connection,
    backend: FakeBackend,
    reference: Reference,
) -> None:
    """Each expression has calls of its own, which a setting tells apart."""
    items = [
        expression.replace("id)", f"id, max_tokens := {10 + at})", expression.count("('up', id)"))
        for at, (expression, _) in enumerate(expressions)
    ]
    query = f"SELECT {', '.join(items)} FROM films"
    assert con.sql(query).fetchall() == reference(re.sub(r", max_tokens := \d+", "", query))
    for at, (expression, asked) in enumerate(expressions):
        own = [one.fields["id"] for one in backend.asked if one.sampling.max_tokens == 10 + at]
        assert sorted(own) == asked, expression


def test_phr_counts_what_fields_begin_with_and_leaves_the_prompt_aside(con: Connection) -> None:
    films = {"id": [1, 2, 3], "tag": ["space", "paris", "space"]}
    con.register("tagged", films)
    shared, alone = con.sql("SELECT LLM('up', id, tag), LLM('up', id) FROM tagged").report.stages
    sent = 3 * len('"id": 1') + 3 * len('"tag": "space"')
    hit = len('"tag": "space"') + len('"tag": "') + len('"id": ')  # a tag, its like, an id's like
    assert shared.phr == pytest.approx(hit / sent)
    assert alone.phr == pytest.approx(2 * len('"id": ') / (3 * len('"id": 1')))


def test_a_backend_that_forgets_a_prompt_leaves_an_error(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeBackend, "answer", lambda self, prompts, sampling: iter(()))
    with pytest.warns(PartialResultWarning, match="The backend gave no answer"):
        result = con.sql("SELECT LLM('up', title) FROM films")
    assert len(result.errors) == 5
