"""`relquery sql --batch`, `resume` and `batches`, over OpenAI's form of batches."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from relquery.cli import main
from tests.backends.provider.batches.batch_server import Body, serving

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line; gives its exit code, standard output and standard error."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["relquery", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, " ".join(err.split())

    return run


def answer(body: Body) -> tuple[int, Body]:
    message = {"role": "assistant", "content": str(len(body["messages"][-1]["content"]))}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    return 200, {"object": "chat.completion", "choices": [choice], "usage": usage}


def test_a_batch_is_submitted_and_its_answers_come_when_the_run_is_resumed(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("n\n1\n2\n3\n", encoding="utf-8")
    ledger, query = str(tmp_path / "run.db"), "SELECT n, LLM('up', n) AS up FROM t"
    with serving(answer, looks=3) as server:
        at = ("--model", "openai:gpt-4.1-mini", "--base-url", f"{server.url}/v1")
        table = ("--table", str(tmp_path / "t.csv"))
        status, _, err = run("sql", query, *table, *at, "--ledger", ledger, "--batch")
        assert status == 4
        assert "A batch of 3 requests is with OpenAI, 0 of them done." in err
        assert f"relquery resume {ledger}" in err

        status, out, err = run("batches", ledger, "--base-url", f"{server.url}/v1")
        assert status == 0
        assert "running" in out
        assert "batch_0" in out

        (noted,) = json.loads(run("ledger", ledger, "--format", "json")[1])["runs"]
        assert noted["state"] == "pending"
        status, out, err = run("resume", ledger, "--format", "csv")
        assert status == 0
        assert "Resuming run 1, which waits for a batch." in err
        assert [line.split(",")[0] for line in out.splitlines()] == ['"n"', "1", "2", "3"]
        assert len(server.batches) == 1
        assert run("resume", ledger)[2].startswith("Nothing to resume")


def test_calls_that_do_not_need_each_other_are_submitted_together(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("n\n1\n2\n", encoding="utf-8")
    ledger = str(tmp_path / "run.db")
    query = (
        "SELECT LLM('up', n) AS up, LLM('down', n) AS down, LLM('re', LLM('up', n)) AS re FROM t"
    )
    with serving(answer, looks=2) as server:
        at = ("--model", "openai:gpt-4.1-mini", "--base-url", f"{server.url}/v1")
        table = ("--table", str(tmp_path / "t.csv"))
        status, _, err = run("sql", query, *table, *at, "--ledger", ledger, "--batch")
        assert status == 4
        assert "2 batches of 4 requests are with OpenAI" in err
        assert [len(batch.lines) for batch in server.batches] == [2, 2]
        assert run("resume", ledger)[0] == 4  # the call over answers
        assert run("resume", ledger)[0] == 0
        assert sum(len(batch.lines) for batch in server.batches) in (5, 6)


def test_batches_are_cancelled(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv").write_text("n\n1\n", encoding="utf-8")
    ledger = str(tmp_path / "run.db")
    with serving(answer, looks=99) as server:
        at = ("--model", "openai:gpt-4.1-mini", "--base-url", f"{server.url}/v1")
        query = ("SELECT LLM('up', n) AS up FROM t", "--table", str(tmp_path / "t.csv"))
        assert run("sql", *query, *at, "--ledger", ledger, "--batch")[0] == 4
        status, out, err = run("batches", ledger, "--cancel")
        host = server.url.removeprefix("http://")
        assert "not asked" in out
        assert f"{host} was not asked. Give its address: relquery batches {ledger}" in err
        assert err.endswith("--base-url URL 0 batches were cancelled.")
        assert not server.batches[0].is_cancelled
        monkeypatch.setenv("COLUMNS", "60")
        cancel = ("batches", ledger, "--cancel", "--base-url", f"{server.url}/v1")
        status, out, err = run(*cancel)
        assert (status, err) == (0, "1 batch was cancelled.")
        assert f"openai:gpt-4.1-mini@{host}" in "".join(out.split())
        assert server.batches[0].is_cancelled
        assert run(*cancel)[2] == "0 batches were cancelled."
        status, _, err = run("resume", ledger)
        assert status == 3
        assert "The batch was cancelled." in err


def test_a_batch_that_the_provider_does_not_know_is_not_submitted_again_unasked(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("n\n1\n2\n", encoding="utf-8")
    ledger = str(tmp_path / "run.db")
    with serving(answer, looks=99) as server:
        at = ("--model", "openai:gpt-4.1-mini", "--base-url", f"{server.url}/v1")
        query = ("SELECT LLM('up', n) AS up FROM t", "--table", str(tmp_path / "t.csv"))
        assert run("sql", *query, *at, "--ledger", ledger, "--batch")[0] == 4
        server.batches[0].id = "of_another_account"
        status, _, err = run("resume", ledger)
        assert status == 1
        assert "OpenAI does not know the batch batch_0" in err
        assert f"relquery batches {ledger} --forget batch_0" in err
        assert "unknown there" in run("batches", ledger, "--base-url", f"{server.url}/v1")[1]
        assert len(server.batches) == 1

        status, out, _ = run("batches", ledger, "--forget", "batch_0")
        assert (status, out) == (0, "The batch batch_0 is forgotten. It had 2 requests.\n")
        assert "has no batch 'batch_0'" in run("batches", ledger, "--forget", "batch_0")[2]
        assert run("resume", ledger)[0] == 4
        assert len(server.batches) == 2


def test_options_of_batches_that_do_not_go_together_are_refused(run: Run) -> None:
    query = ("sql", "SELECT LLM('up', 1)")
    assert "--wait is for --batch" in run(*query, "--wait")[2]
    assert "--batch: only for a provider's model" in run(*query, "--batch", "--ledger", "x")[2]
    assert "--batch needs --ledger FILE" in run(*query, "--batch", "--model", "openai:m")[2]
    assert "does not exist" in run("batches", "nowhere.db")[2]
