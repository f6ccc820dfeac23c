"""`relquery reorder` with --batch and --answers: prompts out, answers back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from relquery.cli import main
from relquery.table.prompts.template import Template
from relquery.table.reorder import reorder
from tests.table.prompts import providers

Run = Callable[..., tuple[str, str]]

ROWS = {"city": ["Ulm", "Bonn", "Ulm", "Bonn"], "note": ["a", 'b "c"', "d", "é"]}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        '"' + '","'.join(each.replace('"', '""') for each in row) + '"'
        for row in zip(*ROWS.values(), strict=True)
    ]
    Path("shop.csv").write_text("\n".join([",".join(ROWS), *lines]), encoding="utf-8")


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], shop: None
) -> Run:
    """Runs `relquery reorder shop.csv` in this process; gives standard output and error."""

    def call(*arguments: str, code: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["relquery", "reorder", "shop.csv", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = (stream.decode() for stream in capfdbinary.readouterr())
        assert (ended.value.code or 0) == code, out + err
        return out, err

    return call


def results(path: str, said: str, rows: set[int], target: str) -> None:
    """The results of some rows of a batch."""
    lines = [
        providers.answer(request, said)
        for request in providers.requests([Path(path)])
        if int(request["custom_id"].split("-")[1]) in rows
    ]
    providers.write_results(Path(target), lines)


def test_a_batch_holds_the_prompts_in_the_best_order(run: Run) -> None:
    out, err = run(
        "--method", "fixed", "--template", "Is it?", "--batch", "b.jsonl", "--model", "m",
        "--max-tokens", "7",
    )  # fmt: skip
    assert out == "Order: fixed; hit rate 52.9%.\n"
    assert err.splitlines() == [
        "4 requests in b.jsonl.",
        "When the results have arrived, run: relquery reorder shop.csv --answers RESULTS "
        "--answered FILE.csv",
    ]
    found = providers.requests([Path("b.jsonl")])
    schedule = reorder(ROWS, "fixed", "discover")
    assert [providers.text(request) for request in found] == [
        prompt.text for prompt in schedule.prompts("Is it?")
    ]
    assert found[0]["body"]["max_completion_tokens"] == 7


def test_the_command_that_reads_the_answers_takes_the_same_part_of_the_table(run: Run) -> None:
    part = ("--columns", "city,note", "--rows", "2")
    _, err = run(*part, "--template", "Q", "--batch", "b.jsonl", "--model", "m", "-m", "fixed")
    command = err.splitlines()[-1].partition(": ")[2]
    words = command.replace("RESULTS", "r.jsonl").replace("FILE.csv", "t.csv").split()
    results("b.jsonl", "Yes", {0, 1}, "r.jsonl")
    _, err = run(*words[3:])
    assert err == "2 of 2 rows have an answer.\n"


def test_a_price_of_claude_gives_a_batch_with_breakpoints_for_anthropic(run: Run) -> None:
    Path("system.txt").write_text("Be brief. " * 200, encoding="utf-8")
    arguments = ("--weight", "claude-opus-5", "--system", "@system.txt", "--template", "Is it?")
    _, err = run("-m", "fixed", *arguments, "--batch", "b.jsonl", "--waves", "2")
    assert "4 requests in b-wave1.jsonl, b-wave2.jsonl." in err
    assert "USD at list prices" in err
    first, *rest = providers.requests([Path("b-wave1.jsonl"), Path("b-wave2.jsonl")])
    assert len(rest) == 3
    assert first["params"]["model"] == "claude-opus-5"
    template = Template("Is it?", system="Be brief. " * 200)
    schedule = reorder(ROWS, "fixed", weight="claude-opus-5", prefix=template.prefix)
    document = json.loads(run("-m", "fixed", *arguments, "--batch", "b.jsonl", "--json")[0])
    assert schedule.report.bill is not None
    assert document["batch"] == {
        "requests": 4,
        "waves": [["b.jsonl"]],
        "usd": schedule.report.bill.usd,
    }


def test_answers_are_put_back_and_the_others_sent_again(run: Run) -> None:
    batch = ("-m", "fixed", "--template", "Is it?", "--model", "claude-x")
    run(*batch, "--batch", "b.jsonl")
    results("b.jsonl", "Yes", {0, 3}, "1.jsonl")
    out, err = run("--answers", "1.jsonl", "--answered", "t.parquet", code=3)
    assert out == ""  # nothing is ordered
    assert "2 of 4 rows have an answer.\nNo result for rows 1, 2." in err
    assert "repeat the command with --template and --batch" in err
    assert "write_batch" not in err
    assert pq.read_table("t.parquet").to_pydict() == {
        **ROWS,
        "answer": ["Yes", None, None, "Yes"],
        "error": [None, *["There is no result for this row."] * 2, None],
    }
    answers = ("--answers", "1.jsonl", "--answered", "t.csv")
    _, err = run(*batch, *answers, "--batch", "again.jsonl", code=3)
    assert "These rows are in the new batch." in err
    assert "2 requests in again.jsonl." in err
    results("again.jsonl", "No", {1, 2}, "2.jsonl")
    _, err = run(*answers, "--answers", "2.jsonl")
    assert err == "4 of 4 rows have an answer.\n"
    assert pa_csv.read_csv("t.csv")["answer"].to_pylist() == ["Yes", "No", "No", "Yes"]


def test_answers_can_be_told_as_json(run: Run) -> None:
    run("-m", "fixed", "--template", "Is it?", "--model", "m", "--batch", "b.jsonl")
    results("b.jsonl", "Yes", {0, 1, 2}, "1.jsonl")
    with Path("1.jsonl").open("a", encoding="utf-8") as file:
        file.write("{\n")
    out, _ = run("--answers", "1.jsonl", "--answered", "t.json", "--json", code=3)
    assert json.loads(out) == {
        "file": "shop.csv",
        "answers": {
            "rows": 4,
            "errors": [{"row": 3, "error": "There is no result for this row."}],
            "problems": [
                "1 line could not be read: not JSON (1.jsonl, line 4). Download the file again."
            ],
        },
    }
    assert json.loads(Path("t.json").read_text(encoding="utf-8"))[0]["answer"] == "Yes"


def test_columns_of_the_table_keep_their_names(run: Run) -> None:
    Path("shop.csv").write_text("answer,b\nx,1\n", encoding="utf-8")
    run("--template", "Is it?", "--model", "m", "--batch", "b.jsonl", "-m", "fixed")
    results("b.jsonl", "Yes", {0}, "1.jsonl")
    run("--answers", "1.jsonl", "--answered", "t.parquet")
    assert pq.read_table("t.parquet").column_names == ["answer", "b", "answer_2", "error"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--batch", "b.jsonl"), "--batch and --template belong together"),
        (("--template", "Is it?"), "--batch and --template belong together"),
        (("--system", "Be brief."), "--system only has an effect with --template"),
        (("--answers", "1.jsonl"), "--answers and --answered belong together"),
        (("--answered", "t.csv"), "--answers and --answered belong together"),
        (("--template", "Q", "--batch", "b.jsonl"), "--batch needs --model"),
        (("--template", "Q", "--batch", "b.json", "--model", "m"), "must end in .jsonl"),
        (("--answers", "1.jsonl", "--answered", "t.xls"), ".parquet or .csv or .json"),
        (("--answers", "1.jsonl", "--answered", "t.csv"), "1.jsonl cannot be read"),
        (("--form", "opena"), "Did you mean 'openai'"),
        (("--template", "{note}"), "can only have {fields}"),
        (
            ("--template", "@none.txt"),
            "the file none.txt cannot be read: No such file or directory.",
        ),
        (("--template", "shop.csv"), "shop.csv is a file. Write @shop.csv to read the template"),
        (("--template", "Q", "--system", "shop.csv"), "Write @shop.csv to read the system"),
        (("--template", "Q", "--prefix", "P"), "Leave --prefix out"),
        (("--template", "Q", "--batch", "b.jsonl", "--model", "m", "--waves", "0"), "waves is 0"),
    ],
)
def test_what_a_person_may_get_wrong_is_one_line_with_a_remedy(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    out, err = run("-m", "original", *arguments, code=1)
    assert message in err
    assert err.startswith("Error: ")
    assert len(err.splitlines()) == 1
    assert out == ""
