"""`relquery sql` with the options of a provider."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.standin.http import Json
from benchmarks.standin.server import Reply, Scripted, Silence, question, serving
from benchmarks.standin.wires.openai_chat import completion
from relquery.cli.command import ROWS_LOST
from tests.cases import cases
from tests.cli.conftest import Run


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("n\n" + "".join(f"{n}\n" for n in range(30)), encoding="utf-8")
    return path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, relquery: Run) -> Run:
    """Runs a query; gives standard output, and standard error as one line."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    def run(*options: str, code: int = 0) -> tuple[str, str]:
        query = "SELECT n, LLM('up', n) AS up FROM t"
        given = options if options[0] == "resume" else ("sql", query, *options)
        out, err = relquery(*given, code=code)
        return out, " ".join(err.split())

    return run


def answer(body: Json) -> Reply:
    return completion(question(body)[:1])


def at(server: Scripted, *options: str) -> tuple[str, ...]:
    return ("--model", "openai:m", "--base-url", server.url, *options)


def test_the_options_reach_the_server(rows: Path, run: Run) -> None:
    with serving(answer) as server:
        options = ("--concurrency", "3", "--timeout", "20", "--retries", "1", "--rpm", "100000")
        assert len(run("-t", str(rows), "-f", "csv", *at(server, *options))[0].splitlines()) == 31
        assert server.peak <= 3


def test_a_local_model_filters_and_a_providers_writes_within_a_budget_and_resumes(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relquery: Run
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    query = "SELECT LLM('up', n, model := 'openai:m') FROM t WHERE AI_FILTER('Any?', n) OR n >= 0"
    ledger = str(tmp_path / "run.db")
    with serving(answer) as server:
        options = (
            "-t",
            str(rows),
            "--model",
            "random:layers=1,hidden=16",
            "--base-url",
            server.url,
        )
        limits = ("--budget", "10 calls", "--concurrency", "1", "--ledger", ledger)
        relquery("sql", query, *options, *limits, code=1)
        assert len(server.asked) == 10
        relquery("resume", ledger, "--budget", "20 calls")
        assert len(server.asked) == 30


def test_time_ends_rows_that_have_no_answer(rows: Path, run: Run) -> None:
    def mostly(body: Json) -> Reply | Silence:
        is_hung = re.search(r"\b7\b", question(body))
        return Silence.UNTIL_CLIENT_LEAVES if is_hung else answer(body)

    for option in ("--deadline", "--total-timeout"):
        with serving(mostly) as server:
            given = ("-t", str(rows), "-f", "csv", *at(server, option, "1"))
            out, err = run(*given, code=ROWS_LOST)
        assert "7," in out.splitlines()
        assert "row 7: No answer within 1 seconds. Raise " in err


def test_prompts_are_written_as_text_if_asked(rows: Path, run: Run) -> None:
    with serving(answer) as server:
        run("-t", str(rows), "-f", "csv", *at(server, "--prompt-form", "text"))
        assert all("{" not in question(body) for body in server.asked)
        run("-t", str(rows), "-f", "csv", *at(server))
        assert all("{" in question(body) for body in server.asked[30:])
    _, err = run("-t", str(rows), "--prompt-form", "yaml", code=1)
    assert "The form 'yaml' is not known. Known: json, text." in err


def test_a_budget_that_is_spent_says_how_to_go_on(rows: Path, tmp_path: Path, run: Run) -> None:
    ledger = tmp_path / "run.db"
    with serving(answer) as server:
        options = at(server, "-t", str(rows), "-f", "csv", "--ledger", str(ledger))
        _, err = run(*options, "--budget", "10 calls", code=1)
        assert "The budget of 10 calls has no room for another call: 10 calls are spent" in err
        assert f"Answers so far are in {ledger} (10 new); to go on: relquery resume" in err
        assert err.count("go on") == 1
        assert len(server.asked) == 10
        with closing(sqlite3.connect(ledger)) as file:
            assert file.execute("SELECT count(*) FROM answers").fetchone() == (10,)
        _, err = run("resume", str(ledger), code=1)  # with the budget of that run
        assert "10 calls were spent by earlier runs; this run may spend up to 10 calls more." in err
        assert len(server.asked) == 20
        out, err = run("resume", str(ledger), "--budget", "10,000 tokens")
        assert re.search(r"\d tokens were spent by earlier runs; .* up to 10,000 tokens more", err)
        assert len(out.splitlines()) == 31
        assert len(server.asked) == 30


def test_a_budget_that_is_spent_without_a_ledger_names_it(rows: Path, run: Run) -> None:
    with serving(answer) as server:
        _, err = run("-t", str(rows), *at(server), "--budget", "10 calls", code=1)
    assert err.endswith("Raise the budget. Give --ledger FILE to keep what is answered.")


def test_options_that_do_not_go_together_are_refused_before_a_call(rows: Path, run: Run) -> None:
    for options, message in cases(__file__):
        assert message in run("-t", str(rows), *options.split(), code=1)[1]
