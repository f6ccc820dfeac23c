"""Tests as files of statements, each with what it gives, as sqllogictest has them.

A line `-- title` begins a test; `(long)` at its end leaves it out of the quick run. A line at the
margin is a statement, and indented ones go on with it. Marked lines below a statement, or behind
it after two spaces, say what it gives:

    = value     its rows            ? expression    is true of the names of `_names`
    = DuckDB's  its rows in any order are those of `reference`, with the model as SQL
    ! Kind text an error, a pattern of its message, and no call
    ~ Kind text a warning and a pattern of its message
    # number    so many calls       $ value         its parameters
    % a=1, b=2  other arguments     < 'q': 'a', ... answers of the model, or another one

`:: SELECT {} FROM t` puts the statements of a test in a frame, and `@name text` stands for what is
written {name} in the statements below it.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from relquery import errors as all_errors
from relquery.connection import Connection
from relquery.prompt import Answer, Compared, Finish, Sampling
from tests.sql.fakes import FakeBackend, text_of

_MARKED = re.compile(r"(?:^|  )([=!?~#$%<]) ")
_KNOWN = {
    "date": dt.date, "datetime": dt.datetime, "json": json, "inf": math.inf, "nan": math.nan,
    "Decimal": Decimal, "Answer": Answer, "Compared": Compared, "Finish": Finish,
    "Sampling": Sampling, "approx": pytest.approx, "text_of": text_of, "re": re,
}  # fmt: skip
_SHOWN = ("rows", "columns", "errors", "error", "queries", "fields")
_ASKS = (all_errors.LateQueryError, all_errors.RequestError)


@dataclass(frozen=True, slots=True)
class Step:
    """A statement and its marked lines."""

    sql: str
    marks: tuple[tuple[str, str], ...]

    def run(self, con: Connection, backend: FakeBackend, known: Mapping[str, Any]) -> None:
        """Run it and compare all that it says."""
        names = {**_KNOWN, **known, "con": con, "backend": backend}
        given = dict(self.marks)
        self._set_model(given.get("<", ""), backend, names)
        params = eval(given.get("$", "None"), names)
        options = eval(f"dict({given.get('%', '')})", names)
        backend.asked.clear()
        error, result = None, None
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                result = con.sql(self.sql, params, **options)
            except all_errors.RelqueryError as raised:
                if "!" not in given:
                    raise
                error = raised
        names |= _names(result, error, backend)
        for mark, text in self.marks:
            self._check(mark, text, names, warned)
        unsaid = [str(one.message) for one in warned if "~" not in given]
        assert not unsaid, f"{self.sql}: {unsaid}"

    def _set_model(self, text: str, backend: FakeBackend, names: dict[str, Any]) -> None:
        """By the answers to some questions, or another function."""
        if text.startswith(("'", '"')):
            assert hasattr(backend.function, "update"), "the model of these tests takes no answers"
            backend.function.update(eval(f"{{{text}}}", names))
        elif text:
            backend.function = eval(text, names)

    def _check(
        self,
        mark: str,
        text: str,
        names: dict[str, Any],
        warned: Sequence[warnings.WarningMessage],
    ) -> None:
        kind, _, pattern = text.partition(" ")
        match mark:
            case "=" if text == "DuckDB's":
                wanted = names["reference"](self.sql)
                assert sorted(names["rows"], key=repr) == sorted(wanted, key=repr), self.sql
            case "=":
                assert names["rows"] == eval(text, names), self.sql
            case "?":
                shown = {name: names.get(name) for name in _SHOWN}
                assert eval(text, names), f"{self.sql}\n{text}\n{shown}"
            case "#":
                assert len(names["asked"]) == int(text), self.sql
            case "!":
                error = names["error"]
                assert isinstance(error, getattr(all_errors, kind)), f"{self.sql}: {error!r}"
                assert re.search(pattern, str(error)), f"{self.sql}: {error}"
                assert isinstance(error, _ASKS) or not names["asked"], self.sql
                assert "_rq_" not in str(error)
            case "~":
                found = [one for one in warned if one.category.__name__ == kind]
                assert any(re.search(pattern, str(one.message)) for one in found), self.sql


def _names(result: Any, error: Exception | None, backend: FakeBackend) -> dict[str, Any]:
    """result of a statement, its rows, columns, errors, stages, told (a dict a row) and failed (the
    rows with an error, from 1); error; asked, of the first one query, fields and sampling, and
    queries of all.
    """
    asked = list(backend.asked)
    names: dict[str, Any] = {"result": result, "error": error, "asked": asked}
    names["queries"] = [one.query for one in asked]
    if asked:
        first = asked[0]
        names |= {"first": first, "query": first.query, "fields": first.fields}
        names["sampling"] = first.sampling
    if result is not None:
        names |= {"rows": result.fetchall(), "columns": result.columns, "errors": result.errors}
        names |= {"stages": result.report.stages, "told": result.arrow().to_pylist()}
        names["failed"] = sorted(one.row + 1 for one in result.errors)
    return names


@dataclass(slots=True)
class Script:
    """A test. frame: around each statement."""

    title: str
    frame: str = "{}"
    steps: list[Step] = field(default_factory=list)

    def run(self, con: Connection, backend: FakeBackend, **known: Any) -> None:
        """Run its statements. known: what its expressions may read besides."""
        assert self.steps
        for step in self.steps:
            step.run(con, backend, known)


def scripts(test_file: str, *names: str) -> pytest.MarkDecorator:
    """`parametrize` with the tests in the file beside a test: of its name, or of others."""
    path = Path(test_file)
    paths = [path.with_name(f"{name}.sql") for name in names] or [path.with_suffix(".sql")]
    found = [one for each in paths for one in read(each.read_text(encoding="utf-8"))]
    assert found
    return pytest.mark.parametrize(
        "script",
        [
            pytest.param(one, id=one.title, marks=pytest.mark.long if is_long else ())
            for one, is_long in found
        ],
    )


def read(text: str) -> list[tuple[Script, bool]]:
    """The tests of a file, and which are long."""
    found, texts = list[tuple[Script, bool]](), dict[str, str]()
    for lines in re.split(r"\n(?! )", re.sub(r"\n{2,}", "\n", text.strip())):
        line = lines.replace("\n  ", " ")
        if line.startswith("-- "):
            title = line.removeprefix("-- ")
            found.append((Script(title.removesuffix(" (long)")), title.endswith(" (long)")))
            continue
        script = found[-1][0] if found else Script("")
        if line.startswith("@"):
            key, _, value = line[1:].partition(" ")
            texts[f"{{{key}}}"] = _written(value, texts)
        elif line.startswith(":: "):
            script.frame = line[3:]
        else:
            statement, *marks = _MARKED.split(line)
            said = (_written(one.strip(), texts) for one in marks[1::2])
            pairs = tuple(zip(marks[::2], said, strict=True))
            if statement:
                sql = _written(script.frame.replace("{}", statement, 1), texts)
                script.steps.append(Step(sql, pairs))
            else:
                last = script.steps[-1]
                script.steps[-1] = Step(last.sql, last.marks + pairs)
    return found


def _written(text: str, texts: Mapping[str, str]) -> str:
    for name, value in texts.items():
        text = text.replace(name, value)
    return text
