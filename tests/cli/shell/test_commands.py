"""The dot-commands: what each does, and what a person may get wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pytest

from relquery.cli.shell.commands import COMMANDS
from relquery.cli.shell.session import Screen, Session
from relquery.cli.shell.start import run_entries
from relquery.cli.sql.options import ConnectionOptions
from tests.cases import cases
from tests.cli.shell.conftest import Say
from tests.sql.fakes import FakeBackend

ASKS = "SELECT LLM('up', title) AS up FROM films;"


def test_help_has_a_line_for_every_command(say: Say) -> None:
    out, _ = say("help")
    for name in COMMANDS:
        assert any(line.startswith(name) and len(line.split()) > 3 for line in out.splitlines())


@pytest.mark.parametrize(("typed", "said"), cases(__file__))
def test_what_is_wrong_is_named(say: Say, session: Session, typed: str, said: str) -> None:
    assert said in " ".join(say(typed)[1].split())
    assert not session.is_over


def test_tables_and_their_columns_are_listed(say: Say) -> None:
    say('CREATE TABLE "my.table" (x DATE, "[red]" INT);')
    say("CREATE VIEW ups AS SELECT LLM('up', title) AS up FROM films;")
    out, _ = say(".tables")
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["films", "my.table", "ups"]
    assert "x, [red]" in out


def test_a_file_is_a_table_in_any_database(say: Say, session: Session, tmp_path: Path) -> None:
    (tmp_path / "my actors.csv").write_text("name\nAnn\n", encoding="utf-8")
    _, err = say(f".register actors='{tmp_path}/my actors.csv'")
    assert "does not exist" in err  # quotes are for the whole argument
    assert say(f".register actors={tmp_path}/my actors.csv")[1] == "actors: name\n"
    path = tmp_path / "other.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
    say(ASKS)
    say(f".open {path}")
    assert set(session.connection.tables()) == {"kept", "actors", "films"}
    say("INSERT INTO kept VALUES (8);")
    assert "0 LLM calls" in say(ASKS)[1]  # answers are still known
    say(".open :memory:")
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (2,)


def test_a_wrong_database_leaves_the_present(say: Say, session: Session, tmp_path: Path) -> None:
    say("CREATE TABLE kept (x INT);")
    assert "Error" in say(f".open {tmp_path}")[1]
    assert set(session.connection.tables()) == {"kept", "films"}
    assert "0" in say("SELECT count(*) FROM kept;")[0]


def test_a_model_is_loaded_when_it_is_asked(
    say: Say, loaded: list[str], backend: FakeBackend
) -> None:
    assert say(".model")[1] == "model: demo\n"
    say("SELECT 1; .model other\n" + "SELECT 2;")
    say(".model other")
    assert loaded == []
    assert "ALIEN" in say(ASKS)[0]
    assert loaded == ["other"]
    say(".model third")
    assert backend.closed
    say("SELECT LLM('up', stars) FROM films;")
    assert loaded == ["other", "third"]


def test_calls_wait_for_a_yes(say: Say, session: Session, backend: FakeBackend) -> None:
    questions: list[str] = []
    replies = iter([False, True])
    session.ask = lambda question: questions.append(question) or next(replies)  # type: ignore[func-returns-value]
    say(".explain on")
    _, err = say(f"{ASKS} SELECT 1;")
    assert "1 LLM expression, tree order" in err
    assert "Nothing was sent. 1 more entry was not run." in err
    assert backend.asked == []
    assert "ALIEN" in say(f"EXPLAIN ANALYZE {ASKS}")[0] + say(ASKS)[0]
    assert questions == ["Send 2 calls? [y/N] ", "Send 2 calls? [y/N] "]
    assert "ALIEN" in say(ASKS)[0]  # known answers are no calls


def test_only_statements_above_the_limit_wait(say: Say, backend: FakeBackend) -> None:
    assert say(".explain 2")[1] == "explain: above 2 calls\n"
    say(ASKS)
    assert len(backend.asked) == 2
    say(".explain 1")
    say("CREATE VIEW more AS SELECT LLM('more', title) AS m FROM films;")
    say("SELECT * FROM more; BEGIN; COMMIT; SELECT 'LLM(1)';")
    assert len(backend.asked) == 2
    say(".explain off")
    say("SELECT * FROM more;")
    assert len(backend.asked) == 4


def test_results_have_the_form_that_is_set(say: Say) -> None:
    query = "SELECT 'a|b' AS x, NULL AS y, 'l1' || chr(10) || 'l2' AS \"[red]\";"
    assert say(".mode markdown")[1] == "mode: markdown\n"
    assert say(query)[0] == "| x | y | [red] |\n| --- | --- | --- |\n| a\\|b | NULL | l1<br>l2 |\n"
    say(".mode CSV")
    assert say(query)[0] == '"x","y","[red]"\n"a|b",,"l1\nl2"\n'
    say(".mode json")
    assert json.loads(say(query)[0]) == [{"x": "a|b", "y": None, "[red]": "l1\nl2"}]
    assert json.loads(say(f"EXPLAIN {ASKS}")[0])[0]["calls"] == 2
    say(".mode table")
    assert say(query)[0].splitlines()[-1] == "a|b │ NULL │ l1\\nl2"


def test_a_file_of_entries_is_run_until_one_fails(say: Say, tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner.sql", tmp_path / "outer.sql"
    inner.write_text("\ufeffSELECT 'in' AS x;\n.mode csv\nSELECT 'last' AS x", encoding="utf-8")
    outer.write_text(f".read {inner}\nSELECT 'out' AS x;\nSELECT y;\nSELECT 3;\n.mode json\n")
    out, err = say(f".read {outer}")
    assert out.split() == ["x", "━━", "in", '"x"', '"last"', '"x"', '"out"']
    assert "2 more entries were not run" in err
    inner.write_text(f".read {outer}")
    assert "cannot read itself" in say(f".read {outer}")[1]
    inner.write_bytes(b"\xff")
    assert "UTF-8" in say(f".read {inner}")[1]


def test_missing_values_and_costs_of_the_last_result_can_be_seen_again(say: Say) -> None:
    assert "No values are missing" in say(".errors")[1]
    _, err = say("SELECT LLM('fails', title) FROM films;")
    assert "2 values are missing" in err
    assert "out of [red]spice" in err
    say("SELECT 1;")
    out, _ = say(".errors")
    assert "out of [red]spice" in out
    assert '{"title": "Alien"}' in out


def test_settings_are_shown(say: Say) -> None:
    assert say(".timer on")[1] == "timer: on\n"
    assert say("SELECT 1;")[1].rstrip().endswith(" s")
    say(".rows 2")
    assert say("SELECT range AS n FROM range(9);")[0].splitlines()[-1] == "first 2 of 9 rows"
    assert say(".rows")[1] == "rows: 2\n"


@pytest.mark.parametrize("typed", [".quit", "exit", "quit;", "SELECT 1;\n.quit\nSELECT 2;"])
def test_quit_ends_the_shell(say: Say, session: Session, typed: str) -> None:
    out, _ = say(typed)
    assert session.is_over
    assert "2" not in out


PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "shell.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^relquery> (.*(?:\n     \.\.\.> .*)*)\n", re.MULTILINE)


def _no(question: str) -> bool:
    print(f"{question}n")
    return False


@pytest.mark.long
def test_the_transcripts_are_true(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    setup = ConnectionOptions(model="demo", table=["movies=demo:movies"], embedder="tfidf")
    session = Session.open(setup, Screen(), _no)
    assert len(BLOCKS) == 2
    for block in BLOCKS:
        _, *parts = _ENTRY.split(block)
        for typed, shown in zip(parts[::2], parts[1::2], strict=True):
            run_entries(session, typed.replace("\n     ...> ", "\n"))
            out, err = capsys.readouterr()
            assert set(_lines(shown)) <= set(_lines(out + err)), out + err
    session.close()


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_every_command_is_on_the_page() -> None:
    table = "".join(line for line in PAGE.splitlines() if line.startswith("| `."))
    assert set(re.findall(r"`(\.\w+)", table)) == set(COMMANDS)
