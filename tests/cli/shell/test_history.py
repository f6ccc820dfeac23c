"""What was typed is there in the next session, and nobody else's."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from prompt_toolkit.history import InMemoryHistory

from relquery.cli.shell.history import history_file, open_history


def test_the_file_is_in_the_folder_for_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ann"))
    assert history_file({"XDG_STATE_HOME": "/s"}) == Path("/s/relquery/history")
    for given in ({}, {"XDG_STATE_HOME": "relative"}):
        assert history_file(given, "linux") == Path("/home/ann/.local/state/relquery/history")
    mac = Path("/home/ann/Library/Application Support/relquery/history")
    assert history_file({}, "darwin") == mac
    assert history_file({"LOCALAPPDATA": "/local"}, "win32") == Path("/local/relquery/history")


def test_entries_of_several_lines_are_there_in_the_next_session(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history"
    first = open_history(path)
    first.append_string("SELECT 1;")
    first.append_string("SELECT\n'ü';")
    assert list(open_history(path).load_history_strings()) == ["SELECT\n'ü';", "SELECT 1;"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.touch(0o644)
    open_history(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_bytes_that_are_not_utf_8_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b"\n# then\n+SELECT '\xff\xfe';\n")
    history = open_history(path)
    assert list(history.load_history_strings()) == ["SELECT '\ufffd\ufffd';"]
    history.append_string("SELECT '\udcff';")  # half a character, as a terminal may send it
    assert len(list(open_history(path).load_history_strings())) == 2


def test_without_a_file_the_session_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "history"):
        assert isinstance(open_history(path), InMemoryHistory)
        assert "The history is not kept" in capsys.readouterr().err
    assert isinstance(open_history(None), InMemoryHistory)
