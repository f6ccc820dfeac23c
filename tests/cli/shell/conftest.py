"""A shell over a small table, with a backend that loads no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relquery.cli.shell.session import Screen, Session
from relquery.cli.shell.start import run_entries
from relquery.cli.sql.options import ConnectionOptions
from relquery.prompt import Answer, Finish
from tests.sql.fakes import FakeBackend, Fields

Say = Callable[[str], tuple[str, str]]


def upper(query: str, fields: Fields) -> str | Answer:
    """The fields in upper case; nothing for `fails`."""
    if query == "fails":
        return Answer(None, Finish.ERROR, "out of [red]spice")
    return "|".join(str(value) for value in fields.values()).upper()


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(upper)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch, backend: FakeBackend) -> list[str]:
    names: list[str] = []

    def load(model: str, options: object) -> FakeBackend:
        names.append(model)
        return backend

    monkeypatch.setattr("relquery.cli.shell.session.load_shown", load)
    monkeypatch.setenv("COLUMNS", "100")
    return names


@pytest.fixture
def films(tmp_path: Path) -> Path:
    path = tmp_path / "films.csv"
    path.write_text("title,stars\nAlien,4\nDune,3\n", encoding="utf-8")
    return path


@pytest.fixture
def setup(films: Path) -> ConnectionOptions:
    return ConnectionOptions(table=[f"films={films}"], embedder="tfidf")


@pytest.fixture
def session(setup: ConnectionOptions, loaded: list[str]) -> Iterator[Session]:
    opened = Session.open(setup, Screen(), lambda question: False)
    yield opened
    opened.close()


@pytest.fixture
def say(session: Session, capsys: pytest.CaptureFixture[str]) -> Say:
    """Gives a text to the shell; what it writes on standard output and error."""

    def given(text: str) -> tuple[str, str]:
        run_entries(session, text)
        return capsys.readouterr()

    return given
