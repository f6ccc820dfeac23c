"""`relquery sql --batch`, `resume` and `batches`, over OpenAI's form of batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.standin.batches import serving
from benchmarks.standin.http import Json
from benchmarks.standin.wires.openai_chat import completion
from tests.cli.conftest import Run


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, relquery: Run) -> Run:
    """Runs the command line; gives standard output, and standard error as one line."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        out, err = relquery(*arguments, code=code)
        return out, " ".join(err.split())

    return run


def answer(body: Json) -> Json:
    return completion(str(len(body["messages"][-1]["content"])))


WAITS, LOST = 4, 3
UP = "SELECT n, LLM('up', n) AS up FROM t"


def submitted(run: Run, folder: Path, url: str, rows: str = "1 2", query: str = UP) -> str:
    """What is said of a query whose calls are sent as batches."""
    (folder / "t.csv").write_text("\n".join(("n", *rows.split(), "")), encoding="utf-8")
    at = ("--model", "openai:gpt-4.1-mini", "--base-url", url, "--batch")
    given = (*at, "--table", str(folder / "t.csv"), "--ledger", str(folder / "run.db"))
    return run("sql", query, *given, code=WAITS)[1]


def test_a_batch_is_submitted_and_answered_when_resumed(run: Run, tmp_path: Path) -> None:
    ledger = str(tmp_path / "run.db")
    with serving(answer, looks=3) as server:
        err = submitted(run, tmp_path, server.url, "1 2 3")
        assert "A batch of 3 requests is with OpenAI, 0 of them done." in err
        assert f"relquery resume {ledger}" in err
        out, _ = run("batches", ledger, "--base-url", server.url)
        assert "running" in out
        assert "batch_1" in out
        (noted,) = json.loads(run("ledger", ledger, "--format", "json")[0])["runs"]
        assert noted["state"] == "pending"
        out, err = run("resume", ledger, "--format", "csv")
        assert "Resuming run 1, which waits for a batch." in err
        assert [line.split(",")[0] for line in out.splitlines()] == ['"n"', "1", "2", "3"]
        assert len(server.batches) == 1
        assert run("resume", ledger)[1].startswith("Nothing to resume")


def test_batches_are_cancelled(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = str(tmp_path / "run.db")
    with serving(answer, looks=99) as server:
        submitted(run, tmp_path, server.url, "1")
        out, err = run("batches", ledger, "--cancel")
        host = server.root.removeprefix("http://")
        assert "not asked" in out
        assert f"{host} was not asked. Give its address: relquery batches {ledger}" in err
        assert err.endswith("--base-url URL 0 batches were cancelled.")
        assert server.batches[0].cancelled is None
        monkeypatch.setenv("COLUMNS", "60")
        cancel = ("batches", ledger, "--cancel", "--base-url", server.url)
        out, err = run(*cancel)
        assert err == "1 batch was cancelled."
        assert f"openai:gpt-4.1-mini@{host}" in "".join(out.split())
        assert server.batches[0].cancelled is not None
        assert run(*cancel)[1] == "0 batches were cancelled."
        assert "The batch was cancelled." in run("resume", ledger, code=LOST)[1]


def test_an_unknown_batch_is_not_submitted_again_unasked(run: Run, tmp_path: Path) -> None:
    ledger = str(tmp_path / "run.db")
    forget = ("batches", ledger, "--forget", "batch_1")
    with serving(answer, looks=99) as server:
        submitted(run, tmp_path, server.url)
        server.by_id["of_another_account"] = server.by_id.pop("batch_1")
        _, err = run("resume", ledger, code=1)
        assert "OpenAI does not know the batch batch_1" in err
        assert f"relquery batches {ledger} --forget batch_1" in err
        assert "unknown there" in run("batches", ledger, "--base-url", server.url)[0]
        assert len(server.batches) == 1
        assert run(*forget)[0] == "The batch batch_1 is forgotten. It had 2 requests.\n"
        assert "has no batch 'batch_1'" in run(*forget, code=1)[1]
        run("resume", ledger, code=WAITS)
        assert len(server.batches) == 2


def test_options_of_batches_that_do_not_go_together_are_refused(run: Run) -> None:
    query = ("sql", "SELECT LLM('up', 1)")
    for given, said in (
        ((*query, "--wait"), "--wait is for --batch"),
        ((*query, "--batch", "--ledger", "x"), "--batch: only for a provider's model"),
        ((*query, "--batch", "--model", "openai:m"), "--batch needs --ledger FILE"),
        (("batches", "nowhere.db"), "does not exist"),
    ):
        assert said in run(*given, code=1)[1]
