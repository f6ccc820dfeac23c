"""The command line: what a person types, sees, and gets as exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from itertools import takewhile
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from relquery.cli.app import COMMANDS, command
from relquery.cli.terminal import Lines
from relquery.ledger import Ledger
from tests.cases import cases
from tests.cli.conftest import Run
from tests.sql.host.test_statement_thread import SLOW

MODEL = "random:layers=1,hidden=64,heads=1"
COMMAND = [sys.executable, "-c", "from relquery.cli import main; main()"]
LABELLED = "SELECT a, LLM('Good?', a, labels := ['Yes', 'No']) AS good FROM t ORDER BY a"


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "t.csv"
    path.write_text("a,b\nx,1\ny,2\nz,\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def sql(relquery: Run, table: str) -> Run:
    return partial(relquery, "sql", "-t", f"t={table}", "-m", MODEL)


def test_a_query_over_a_file_prints_rows_and_what_it_cost(sql: Run) -> None:
    out, err = sql(LABELLED)
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["x", "y", "z"]
    assert "3 LLM calls" in err
    document = json.loads(sql(LABELLED, "--format", "json")[0])
    assert [row["a"] for row in document["rows"]] == ["x", "y", "z"]
    assert {row["good"] for row in document["rows"]} <= {"Yes", "No"}
    assert document["errors"] == []
    assert document["report"]["calls"] == 3


def test_a_model_that_cannot_be_asked_is_told_with_its_remedy(
    relquery: Run, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for model, remedy in (
        ("openai:gpt-5.4-mini", "No API key is set. Set the environment variable OPENAI_API_KEY"),
        ("openai:gpt-5.4-mini", "export OPENAI_API_KEY=..."),
        ("gpt-4o", "openai:gpt-4o"),
        ("mistral:large", "openai:NAME"),
    ):
        assert remedy in relquery("sql", LABELLED, "-t", table, "-m", model, code=1)[1]


def test_what_fails_after_the_calls_says_how_to_keep_the_answers(sql: Run, tmp_path: Path) -> None:
    late = "SELECT max(LLM('Good?', a, labels := ['Yes', 'No']))::DATE FROM t"
    _, err = sql(late, code=1)
    assert "invalid date" in err
    assert err.rstrip().endswith("Give --ledger FILE to keep what is answered.")
    ledger = ("--ledger", str(tmp_path / "answers.db"))
    _, err = sql(late, *ledger, code=1)
    assert "found after 3 calls were made. The answers are in the ledger" in " ".join(err.split())
    assert "0 LLM calls" in sql(late.replace("::DATE", ""), *ledger)[1]


def test_a_query_from_stdin_goes_to_a_file(sql: Run, relquery: Run, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    arguments = ("-", "-f", "csv", "-o", target)
    out, err = sql(*arguments, stdin=LABELLED)
    assert out.splitlines()[0] == '"a","good"'
    assert pq.read_table(target).num_rows == 3
    assert f"Wrote 3 rows to {target}." in err
    out, _ = relquery("sql", "-f", "markdown", stdin="SELECT 'a|b' AS x")
    assert out == "| x |\n| --- |\n| a\\|b |\n"
    assert "The query is empty" in relquery("sql", code=1)[1]


def test_options_of_one_query_are_refused_where_a_shell_would_open(
    relquery: Run, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relquery.cli.sql.command._is_typed", lambda: True)
    for option in (("--param", "n=1"), ("--output", "x.csv"), ("--explain",)):
        _, err = relquery("sql", "-t", table, *option, code=1)
        assert f"{option[0]} is for one query. Give the query too" in err


def test_a_result_does_not_overwrite_its_table(sql: Run, table: str, tmp_path: Path) -> None:
    before = Path(table).read_bytes()
    _, err = sql(LABELLED, "-o", table, code=1)
    assert "would overwrite the table 't'. Give another file name." in err
    assert Path(table).read_bytes() == before
    text = tmp_path / "query.sql"
    text.write_text(LABELLED)
    assert f"Write: relquery sql - < {text}" in sql(str(text), code=1)[1]


def test_rows_without_a_value_are_counted_and_the_exit_code_is_3(sql: Run) -> None:
    query = "SELECT LLM('Good?', a) FROM t"
    arguments = (query, "--max-tokens", "1")
    assert "3 values are missing" in sql(*arguments, code=3)[1]
    sql(*arguments, "--allow-errors")


@pytest.mark.parametrize(("arguments", "message"), cases(__file__, "wrong"))
def test_what_is_wrong_is_named(sql: Run, arguments: tuple[str, ...], message: str) -> None:
    out, err = sql(*arguments, code=1)
    assert message in err
    assert "Traceback" not in out + err


def test_explain_shows_calls_before_they_are_made_and_how_they_would_be_cheaper(sql: Run) -> None:
    query = "SELECT LLM('Why?', a, b) FROM t WHERE LLM('Good?', a) = 'Yes' AND b > 0"
    out, err = sql(query, "--explain")
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "2 LLM expressions, tree order",
        "stage rows calls prompt tokens hit rate answers asks",
        "filter 1 2 2 472 47% usually one forward pass, at most 256 tokens Good? (a)",
        "projection 1 at most 2 at most 2 at most 486 82% decoded, at most 256 tokens Why? (a, b)",
    ]
    assert err == ""
    many = "'" + "', '".join(f"w{number}" for number in range(10, 30)) + "'"
    query = f"SELECT b FROM t WHERE LLM('Good?', a) IN ({many})"
    out, _ = sql(query, "--explain")
    assert "decoded until it decides, at most 256 tokens" in " ".join(out.split())
    query = query.replace(many, "'Yes'").replace("a)", "a, temperature := 0.5, labels := ['Yes'])")
    assert "decoded, one of 1 label" in " ".join(sql(query, "--explain")[0].split())
    out, _ = sql(f"EXPLAIN {LABELLED}", "--format", "json", "--explain")
    (row,) = json.loads(out)["rows"]
    assert (row["calls"], row["answers"]) == (3, "one forward pass, 2 labels")
    assert row["seconds"] is None
    out, _ = sql(f"EXPLAIN {LABELLED}", "--format", "json", "--cost", "a100-opt13b")
    assert json.loads(out)["rows"][0]["seconds"] > 0


def test_the_engine_is_opened_as_the_options_say(sql: Run) -> None:
    given = ("-m", "random:layers=1,hidden=64", "--max-tokens", "1", "-f", "json")
    query = "SELECT LLM('Good?', a) AS x FROM t LIMIT 1"
    rounded = ("--dtype", "int8", "--quantize", "int8", "--kv-cache-dtype", "int8")
    assert len(json.loads(sql(query, *given, *rounded, "--allow-errors")[0])["rows"]) == 1
    assert "no weights in 4 or 8 bits" in sql(query, *given, "--dtype", "int8", code=1)[1]


def test_parameters_are_json_or_text(relquery: Run) -> None:
    query = "SELECT $n + 1 AS n, $d AS d, $t AS t, $q AS q, $s AS s, $l AS l, $x AS x, $i AS i"
    given = ["n=5", "d=1.10", "t=it's 5; --", 'q="5"', "$s=a=b", "l=[1, null]", "x=null", "i=NaN"]
    params = [part for one in given for part in ("--param", one)]
    out, _ = relquery("sql", query, *params, "-f", "json")
    (row,) = json.loads(out)["rows"]
    assert (row["n"], row["t"], row["q"], row["s"]) == (6, "it's 5; --", "5", "a=b")
    assert (row["l"], row["x"], row["i"]) == ([1, None], None, "NaN")
    assert str(row["d"]) in ("1.10", "1.1")


def test_a_wrong_parameter_is_an_error(relquery: Run) -> None:
    for params, said in cases(__file__, "parameters"):
        assert said in relquery("sql", "SELECT $n", *params.split(), code=1)[1]


def test_explain_shows_what_is_expected_of_later_stages(sql: Run) -> None:
    query = "SELECT LLM('Why?', a, b) FROM t WHERE LLM('Good?', a) = 'Yes'"
    for share in ("0.34", "filter 1=0.34"):
        out, _ = sql(query, "--explain", "--selectivity", share)
        assert " ".join(out.splitlines()[-1].split()).startswith("projection 1 about 1 about 1 ")
    for wrong, said in cases(__file__, "selectivities"):
        assert said in " ".join(sql(query, *wrong, code=1)[1].split())


@pytest.mark.parametrize("some", ["quick", pytest.param("more", marks=pytest.mark.long)])
def test_explain_runs_nothing(relquery: Run, tmp_path: Path, some: str) -> None:
    path = str(tmp_path / "t.db")
    with duckdb.connect(path) as database:
        database.execute("CREATE TABLE t AS SELECT 1 AS a")
    for query, message in cases(__file__, f"explained, {some}"):
        assert message in relquery("sql", query, "--explain", "--database", path, code=1)[1]
    relquery("sql", "DELETE FROM t", "--explain", "--database", path)
    with duckdb.connect(path) as database:
        assert database.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_plain_sql_is_written_as_asked(relquery: Run) -> None:
    values = "'nan'::DOUBLE AS n, 1.5::DECIMAL(4, 2) AS d, 'ab'::BLOB AS b, DATE '2020-01-02' AS t"
    out, _ = relquery("sql", f"SELECT {values}", "--format", "json")
    strict = [{"n": None, "d": 1.5, "b": "YWI=", "t": "2020-01-02"}]
    assert json.loads(out)["rows"] == strict
    out, _ = relquery("sql", "EXPLAIN SELECT 1")  # as DuckDB draws it
    assert "\\n" not in out
    assert "╭─ Projection" in out


def test_a_query_without_calls_loads_no_model(relquery: Run, table: str) -> None:
    out, _ = relquery("sql", "SELECT 41 + 1 AS x", "-m", "no-such-model", "-f", "csv")
    assert out.split() == ['"x"', "42"]
    _, err = relquery("sql", "SELECT LLM('Good?', 1)", "-m", "./no-such-model", code=1)
    assert "./no-such-model does not exist" in err
    _, err = relquery("sql", "SELECT a FROM t", "-t", table)
    assert "without --model the demo model answers. It only knows the bundled tables" in err
    _, err = relquery("sql", "SELECT count(*) FROM movies", "-t", "demo:movies")
    assert "without --model" not in err


def test_the_demo_asks_the_same_in_three_ways_and_shows_what_was_reused(
    relquery: Run, tmp_path: Path
) -> None:
    page = tmp_path / "reused.html"
    out, err = relquery("demo", "--rows", "80", "--html", page)
    lines = [line.split("│") for line in out.splitlines() if line.count("│") == 4]
    read = {line[0].strip(): int(line[2].replace(",", "")) for line in lines if "%" in line[4]}
    assert list(read) == ["relquery", "the table's order", "no reuse"]
    assert read["relquery"] * 2 < read["the table's order"] < read["no reuse"]
    assert all(line[4].strip() == "100.0%" for line in lines if "%" in line[4]), out
    assert err.count(": 80 answers in ") == 3
    assert str(page) in out
    assert "suitable for kids" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_itself(name: str) -> None:
    lines = command(name).help.splitlines()
    assert COMMANDS[name][1] == " ".join(takewhile(str.strip, lines))


_HEAVY = {"duckdb", "numpy", "pyarrow"}
_FOR_CALLS = {
    f"relquery.{room}"
    for room in ("sql.planner", "sql.run", "sql.explain", "reordering", "markup", "prices")
} | {"pyarrow.compute", "pyarrow.parquet"}


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], _HEAVY),
        (["--version"], _HEAVY),
        (["slq"], _HEAVY),
        (["sql", "SELECT 1"], _FOR_CALLS),
    ],
)
def test_what_needs_no_model_starts_at_once(words: list[str], heavy: set[str]) -> None:
    code = f"""import sys
from relquery.cli import main
sys.argv = ["relquery", *{words}]
try:
    main()
finally:
    print(*{heavy} & sys.modules.keys(), file=sys.stderr)"""
    found = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert found.stderr.splitlines()[-1] == "", found.stderr


@pytest.mark.long
def test_ctrl_c_ends_in_two_seconds_what_duckdb_computes_on(tmp_path: Path, table: str) -> None:
    first, ledger = tmp_path / "first.csv", tmp_path / "run.db"
    script = f"COPY ({LABELLED}) TO '{first}'; {SLOW}"
    given = ("sql", script, "-t", f"t={table}", "-m", MODEL, "--ledger", str(ledger))
    running = subprocess.Popen(
        [*COMMAND, *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not first.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1.0)
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    _, error = running.communicate(timeout=60)
    assert time.monotonic() - began < 4.0  # two of them for a busy machine
    assert running.returncode == 130
    assert f"Answers so far are in {ledger} (3 new)" in " ".join(error.split())
    with closing(Ledger.open(ledger)) as known:
        assert known.has_answers


def test_an_interrupt_anywhere_says_so(relquery: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def press(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("relquery.cli.models.installation", press)
    assert relquery("doctor", code=130)[1] == "Interrupted.\n"


def test_progress_without_a_terminal_is_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 1.0, 15.0, 16.0, 40.0])
    lines = Lines("demo ", lambda: next(seconds))
    for done in range(4):
        lines("filter 1", 1000 * done, 5_000)
    assert capsys.readouterr().err.splitlines() == [
        "demo filter 1: 1,000 of 5,000",
        "demo filter 1: 3,000 of 5,000",
    ]


def test_a_preview_shows_some_rows_and_what_all_rows_would_cost(sql: Run, tmp_path: Path) -> None:
    command = [LABELLED, "--preview", "2"]
    out, err = sql(*command)
    assert "Ran on 2 of 3 rows." in out
    assert "For all rows:" in out
    assert "2 LLM calls" in err
    assert "Give one of them" in sql(*command, "--explain", code=1)[1]
    output = str(tmp_path / "rows.csv")
    assert "overwritten with the preview" in sql(*command, "--output", output, code=1)[1]


def test_a_run_is_written_to_a_page(sql: Run, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    command = [LABELLED, "--html", str(page)]
    assert f"Wrote the page to {page}." in sql(*command)[1]
    assert page.read_text(encoding="utf-8").count("<details") == 3
    assert "not about the preview" in sql(*command, "--preview", "2", code=1)[1]
