"""`relquery ledger` shows, exports and prunes what a ledger knows."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from relquery.cli.ledger import read_time
from relquery.errors import ConfigError
from relquery.ledger import Keys, Ledger, StoredCall, turns
from relquery.ledger.folder import FolderLedger
from relquery.prompt import Answer, Finish, Sampling, Span
from tests.cli.conftest import Run
from tests.ledger.test_ledger import write_earlier

DAY = 86_400.0
PROMPTS = [(Span(f"question {number}"),) for number in range(4)]


def ask(path: Path, model: str, day: int, *answers: Answer) -> None:
    """Store answers to the first prompts, of a model and a day; returns their keys in hex."""
    keys = Keys.of(model, PROMPTS, Sampling())
    call = StoredCall(model, Sampling(), lambda one: one.output_tokens / 4, lambda: day * DAY)
    count = len(answers)
    with (
        closing(Ledger.open(path)) as ledger,
        turns(PROMPTS[:count], np.arange(count), ledger, keys, call) as some,
    ):
        for turn in some:
            for index, _ in enumerate(turn.prompts):
                turn.on_answer(index, answers[int(turn.places[index])])


YES = Answer("yes", Finish.STOP, None, 10, 4, 2)
FAILED = Answer(None, Finish.ERROR, "HTTP 500", attempts=6)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model with a failure that was asked again, and one that was not; and another later."""
    path = tmp_path / "run.db"
    ask(path, "openai:small", 10, YES, FAILED, FAILED)
    ask(path, "openai:small", 11, YES, YES)
    ask(path, "openai:large", 20, YES, YES)
    return path


def groups(relquery: Run, *arguments: object) -> dict[str, tuple[int, int, int]]:
    """(answers, failed, failures) by model."""
    out, _ = relquery("ledger", *arguments, "--format", "json")
    return {
        one["model"]: (one["answers"], one["failed"], one["failures"])
        for one in json.loads(out)["models"]
    }


def test_it_counts_by_model(relquery: Run, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    out, _ = relquery("ledger", path, "--format", "json")
    small = json.loads(out)["models"][1]
    counts = {"answers": 2, "failed": 1, "failures": 2, "attempts": 14}
    tokens = {"prompt_tokens": 20, "cached_tokens": 8, "output_tokens": 4, "usd": 1.0}
    times = {"first": "1970-01-11T00:00:00+00:00", "last": "1970-01-12T00:00:00+00:00"}
    assert small == {"run": None, "model": "openai:small"} | counts | tokens | times
    monkeypatch.setenv("COLUMNS", "150")
    out, _ = relquery("ledger", path)
    assert "4 answers, 1 failed call, 2.0000 USD" in out
    models = [line.split("│")[3].strip() for line in out.splitlines()[-2:]]
    assert models == ["openai:large", "openai:small"]


def test_filters_leave_out_the_rest(relquery: Run, path: Path) -> None:
    large, small = {"openai:large": (2, 0, 0)}, {"openai:small": (2, 1, 2)}
    assert groups(relquery, path) == large | small
    assert groups(relquery, path, "--model", "openai:small") == small
    assert groups(relquery, path, "--model", "*:l*") == large
    assert groups(relquery, path, "--since", "1970-01-12") == large | {"openai:small": (1, 0, 0)}
    assert groups(relquery, path, "--before", "1970-01-12T00:00Z") == {"openai:small": (1, 1, 2)}
    assert groups(relquery, path, "--failed") == {"openai:small": (0, 1, 1)}
    assert groups(relquery, path, "--since", "7d") == {}


def test_a_model_is_found_at_any_server_or_others_are_named(relquery: Run, path: Path) -> None:
    at = "openai:small@127.0.0.1:8911"
    ask(path, at, 30, YES, YES, YES)
    ask(path, "openai:smaller", 30, YES)
    small = {"openai:small": (2, 1, 2)}
    assert groups(relquery, path, "--model", "openai:small") == small | {at: (3, 0, 0)}
    assert groups(relquery, path, "--model", at) == {at: (3, 0, 0)}
    _, err = relquery("ledger", path, "--model", "openai:small", "--prune", "--yes")
    assert "Deleted 5 answers and 2 failures" in err
    others = "The ledger has nothing of a model 'openai:small'. Its models: openai:large, "
    for command in ("ledger",):
        _, err = relquery(command, str(path), "--model", "openai:small", code=1)
        assert f"{others}openai:smaller." in err


def test_it_exports_answers_and_failures(relquery: Run, path: Path, tmp_path: Path) -> None:
    for ending in ("csv", "json", "parquet"):
        output = tmp_path / f"answers.{ending}"
        _, err = relquery("ledger", path, "--model", "openai:small", "-o", output)
        assert f"Wrote 4 rows to {output}." in err
        assert "HTTP 500" in output.read_bytes().decode(errors="replace")
    rows = pq.read_table(tmp_path / "answers.parquet").to_pylist()
    assert [row["text"] for row in rows].count("yes") == 2
    assert {row["error"] for row in rows} == {None, "HTTP 500"}
    keys = [key.hex() for key in Keys.of("openai:small", PROMPTS, Sampling()).whole]
    assert {row["key"] for row in rows} == set(keys[:3])
    answer = next(row for row in rows if row["key"] == keys[0])
    assert (answer["usd"], answer["attempts"]) == (0.5, 1)
    assert json.loads(answer["settings"]) == {"max_tokens": 256, "temperature": 0.0}
    assert str(answer["at"]) == "1970-01-11 00:00:00+00:00"
    path = path.rename(tmp_path / "l.json")
    assert "would overwrite the ledger" in relquery("ledger", path, "-o", str(path), code=1)[1]


def test_pruning_deletes_by_the_filter_once_confirmed(relquery: Run, path: Path) -> None:
    assert "would delete everything" in relquery("ledger", path, "--prune", code=1)[1]
    filtered = ("ledger", path, "--before", "1970-01-12", "--prune")
    relquery(*filtered, code=1, stdin="n\n")
    assert groups(relquery, path)["openai:small"] == (2, 1, 2)
    out, err = relquery(*filtered, stdin="y\n")
    assert f"Delete 1 answers and 2 failures from {path}?" in out
    assert "Deleted 1 answers and 2 failures" in err
    assert groups(relquery, path) == {"openai:large": (2, 0, 0), "openai:small": (1, 0, 0)}
    _, err = relquery("ledger", path, "--model", "openai:large", "--prune", "--yes")
    assert "Deleted 2 answers" in err
    with closing(Ledger.open(path)) as ledger:
        assert set(ledger.find(Keys.of("openai:small", PROMPTS, Sampling()))) == {1}
        assert ledger.connection.execute("SELECT count(*) FROM facts").fetchone() == (1,)
    assert "Nothing to delete." in relquery("ledger", path, "--failed", "--prune", "--yes")[1]


def test_failures_alone_are_pruned_and_answers_stay(relquery: Run, path: Path) -> None:
    relquery("ledger", path, "--failed", "--prune", "--yes")
    assert groups(relquery, path) == {"openai:large": (2, 0, 0), "openai:small": (2, 0, 1)}


def test_a_file_of_an_earlier_version_is_shown_and_pruned(relquery: Run, tmp_path: Path) -> None:
    path, output = tmp_path / "old.db", tmp_path / "out.json"
    write_earlier(path, {b"\1" * 32: "old", b"\2" * 32: "older"})
    before = path.read_bytes()
    out, _ = relquery("ledger", path, "-o", output)
    assert "2 answers" in out
    assert "unknown" in out
    assert [row["text"] for row in json.loads(output.read_text())] == ["old", "older"]
    assert path.read_bytes() == before
    relquery("ledger", path, "--before", "7d", "--prune", "--yes")
    assert groups(relquery, path) == {}


def test_a_folder_is_shown_and_not_pruned(relquery: Run, tmp_path: Path) -> None:
    folder, output = tmp_path / "answers", tmp_path / "out.json"
    folder.mkdir()
    keys = Keys.of("m", PROMPTS, Sampling())
    for task in ("a", "b"):
        with closing(FolderLedger(folder, task, "0")) as ledger:
            ledger.put([keys.entry(0, Answer("half \ud800", Finish.STOP, None, 3))])
    ledger.put([keys.entry(1, YES)])
    relquery("ledger", str(folder), "-o", output)
    rows = json.loads(output.read_text())
    assert {row["key"] for row in rows} == {key.hex() for key in keys.whole[:2]}
    assert {row["text"] for row in rows} == {"half \ufffd", "yes"}
    assert "is a folder" in relquery("ledger", str(folder), "--before", "7d", "--prune", code=1)[1]


def test_what_is_not_a_ledger_is_an_error_and_stays_as_it_is(relquery: Run, tmp_path: Path) -> None:
    text, other, empty = tmp_path / "a.txt", tmp_path / "other.db", tmp_path / "empty"
    text.write_text("some text that is long enough to be a header of a file" * 9)
    empty.mkdir()
    with closing(sqlite3.connect(other)) as file:
        file.execute("CREATE TABLE answers (question, reply)")
    for path, said in {
        text: "is not a ledger: file is not a database",
        other: "is not a ledger: no such column",
        empty: "the folder has no file *.answers",
        tmp_path / "none.db": "does not exist",
    }.items():
        assert said in relquery("ledger", path, code=1)[1]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.txt", "empty", "other.db"]


def test_times_are_dates_or_so_long_ago() -> None:
    now = 100 * DAY
    assert read_time("--since", None, now) is None
    assert read_time("--since", "2d", now) == 98 * DAY
    assert read_time("--since", "36h", now) == 98.5 * DAY
    assert read_time("--since", "99999999999d", now) == 0
    assert read_time("--since", "1970-01-02", now) == DAY
    assert read_time("--since", "1970-01-02T01:00+01:00", now) == DAY
    with pytest.raises(ConfigError, match=r"--since soon: expected a date"):
        read_time("--since", "soon", now)
