"""Answers come back to their rows, each row once, and everything else is told."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import ConfigError, PartialResultWarning, TableError
from relquery.reordering.prompts import forms
from relquery.reordering.prompts.answers import CHANGED, NO_RESULT, Answers
from relquery.reordering.prompts.forms import FormName
from relquery.reordering.reorder import reorder
from relquery.reordering.schedule import Schedule
from tests.cases import values
from tests.reordering import reference
from tests.reordering.prompts import providers
from tests.reordering.strategies import PAID, letters, tables

TABLE: dict[str, Any] = {"a": ["x", "y", "x", None], "b": ["1", "2", "3", "4"]}
Lines = list[providers.Json]


def told(schedule: Schedule, *paths: Path) -> Answers:
    with pytest.warns(PartialResultWarning) as warned:
        answers = schedule.read_answers(paths)
    assert [str(each.message) for each in warned] == [str(answers)]
    assert Path(warned[0].filename) == Path(__file__)
    return answers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


@pytest.fixture(params=providers.FORMS)
def form(request: pytest.FixtureRequest) -> FormName:
    found: FormName = request.param
    return found


@pytest.fixture
def schedule() -> Schedule:
    return reorder(TABLE, "fixed")


@pytest.fixture
def lines(schedule: Schedule, form: FormName, tmp_path: Path) -> Lines:
    """The results of all rows, by row: "answer 0", "answer 1", ..."""
    written = schedule.write_batch(tmp_path / "batch.jsonl", "Is it?", form, model="m")
    found = providers.requests(written.paths)
    by_row = sorted(found, key=lambda request: int(request["custom_id"].split("-")[1]))
    return [providers.answer(request, f"answer {row}") for row, request in enumerate(by_row)]


@given(
    tables(bags=True),
    st.sampled_from(providers.FORMS),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_answers_return_to_their_rows_whatever_the_order_of_results(
    tmp_path_factory: pytest.TempPathFactory,
    table: reference.Table,
    form: FormName,
    waves: int,
    shuffler: random.Random,
) -> None:
    folder = tmp_path_factory.getbasetemp()
    schedule = reorder(
        table.columns, "tree", bags=table.bags, weight=PAID, tokenizer=letters, seconds=0
    )
    written = schedule.write_batch(folder / "b.jsonl", "Is it?", form, model="m", waves=waves)
    results = [
        providers.answer(request, f"é\u2028 of {providers.text(request)}")
        for request in providers.requests(written.paths)
    ]
    shuffler.shuffle(results)
    for line in results:
        providers.check_result(line)
    half = len(results) // 2
    paths = [
        providers.write_results(folder / "1.jsonl", results[:half]),
        providers.write_results(folder / "2.jsonl", results[half:]),
    ]
    again = reorder(table.columns, "original", bags=table.bags)  # in another process, say
    answers = again.read_answers(paths)
    texts = {prompt.row: prompt.text for prompt in schedule.prompts("Is it?")}
    expected = [f"é\u2028 of {texts[row]}" for row in range(len(table.cells))]
    assert answers.values.to_pylist() == expected
    assert (answers.errors, answers.problems) == ({}, ())


def test_rows_without_a_result_are_told_and_can_be_sent_again(
    schedule: Schedule, lines: Lines, form: FormName, tmp_path: Path
) -> None:
    first = providers.write_results(tmp_path / "1.jsonl", lines[1:3])
    answers = told(schedule, first)
    assert answers.values.to_pylist() == [None, "answer 1", "answer 2", None]
    assert answers.errors == {0: NO_RESULT, 3: NO_RESULT}
    assert "No result for rows 0, 3." in str(answers)
    assert "write_batch(..., rows=answers.failed)" in str(answers)
    again = tmp_path / "again.jsonl"
    schedule.write_batch(again, "Is it?", form, model="m", rows=answers.failed)
    results = [providers.answer(request, "late") for request in providers.requests([again])]
    second = providers.write_results(tmp_path / "2.jsonl", results)
    complete = schedule.read_answers([first, second]).values.to_pylist()
    assert complete == ["late", "answer 1", "answer 2", "late"]


def result(kind: str, **fields: Any) -> providers.Json:
    return {"result": {"type": kind, **fields}}


def said_by_anthropic(text: str, stop_reason: str = "end_turn") -> providers.Json:
    return result("succeeded", message=providers.message(text, stop_reason))


def response(body: Any, status: int = 200) -> providers.Json:
    return {"response": {"status_code": status, "request_id": "r", "body": body}, "error": None}


def said_by_openai(*said: Any, **more: Any) -> providers.Json:
    return response(providers.completion(*said, **more))


ERROR = {"type": "error", "error": {"type": "invalid_request_error", "message": "Too long."}}
NO_TEXT = {**providers.message(""), "content": []}
EXPIRED = {"code": "batch_expired", "message": "Not executed."}
NO_ANSWERS: list[tuple[providers.Json, str]] = values(__file__, "no_answers.txt", **globals())


@pytest.mark.parametrize("form", ["openai"], indirect=True)
def test_what_is_no_whole_answer_is_an_error_and_never_a_value(
    schedule: Schedule, lines: Lines, path: Path
) -> None:
    for said, error in NO_ANSWERS:
        lines[2] = {"custom_id": lines[2]["custom_id"], **said}
        answers = told(schedule, providers.write_results(path, lines))
        assert answers.values.to_pylist() == ["answer 0", "answer 1", None, "answer 3"]
        assert list(answers.errors) == [2]
        assert error in answers.errors[2]
        assert f"Row 2: {answers.errors[2]}" in str(answers)
        assert answers.failed.tolist() == [2]


def test_two_results_of_a_row_are_told(schedule: Schedule, lines: Lines, path: Path) -> None:
    other = json.loads(json.dumps(lines[1]).replace("answer 1", "something else"))
    providers.write_results(path, [*lines, lines[0], other])
    answers = told(schedule, path)
    assert answers.values.to_pylist() == [f"answer {row}" for row in range(4)]
    assert answers.errors == {}
    differing, repeated = answers.problems
    said = "1 answer differs from an earlier answer to the same row: row 1 (out.jsonl, line 6)"
    assert said in differing
    assert "1 result for a row that already has one: row 0 (out.jsonl, line 5)" in repeated
    twice = told(schedule, path, path)
    assert "6 results for rows that already have one" in str(twice)


def test_a_failure_and_an_answer_are_told_only_if_they_are_in_one_file(
    schedule: Schedule, lines: Lines, tmp_path: Path
) -> None:
    failed = {"custom_id": lines[0]["custom_id"], **result("expired")}
    first = providers.write_results(tmp_path / "1.jsonl", [failed, *lines[1:]])
    second = providers.write_results(tmp_path / "2.jsonl", lines[:1])
    for paths in ([first, second], [second, first]):
        assert schedule.read_answers(paths).values.to_pylist()[0] == "answer 0"
    both = providers.write_results(tmp_path / "3.jsonl", [failed, *lines])
    assert "1 result for a row that already has one" in str(told(schedule, both))


CHANGES: list[tuple[dict[str, Any], list[int]]] = values(__file__, "changes.txt", TABLE=TABLE)


@pytest.mark.parametrize("form", ["openai"], indirect=True)
def test_answers_to_rows_that_have_changed_since_are_not_taken(lines: Lines, path: Path) -> None:
    providers.write_results(path, lines)
    for table, changed in CHANGES:
        now = reorder(table, "original")
        answers = told(now, path) if changed else now.read_answers(path)
        assert answers.errors == dict.fromkeys(changed, CHANGED)
        assert answers.failed.tolist() == changed
        assert len(answers.problems) == bool(changed)
        kept = [None if row in changed else f"answer {row}" for row in range(4)]
        assert answers.values.to_pylist() == kept


def test_results_of_several_parts_may_come_in_any_order_and_a_missing_part_is_told(
    form: FormName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(forms.FORMS, form, replace(forms.FORMS[form], requests=2))
    schedule = reorder({"a": [str(row) for row in range(7)]}, "original")
    written = schedule.write_batch(tmp_path / "b.jsonl", "Is it?", form, model="m")
    assert [path.name for path in written.paths] == [f"b-{part}.jsonl" for part in (1, 2, 3, 4)]
    results = []
    for path in written.paths:
        answered = [
            providers.answer(each, each["custom_id"]) for each in providers.requests([path])
        ]
        results.append(providers.write_results(path.with_suffix(".out"), answered))
    whole = schedule.read_answers([results[place] for place in (2, 0, 3, 1)])
    assert [text.split("-")[1] for text in whole.values.to_pylist()] == list("0123456")
    lacking = told(schedule, results[3], results[0], results[2])
    assert lacking.failed.tolist() == [2, 3]
    assert "No result for rows 2, 3. If the batch has more result files, read all" in str(lacking)


def test_results_of_other_tables_are_told(schedule: Schedule, lines: Lines, path: Path) -> None:
    strangers = [
        {**lines[0], "custom_id": custom_id}
        for custom_id in ("request-1", "row-9-00000000", "row-0", "row-00-00000000", None, 7)
    ]
    changed = {**lines[1], "custom_id": "row-1-00000000"}
    answers = told(schedule, providers.write_results(path, [*strangers, changed, *lines[2:]]))
    assert answers.values.to_pylist() == [None, None, "answer 2", "answer 3"]
    assert answers.errors == {0: NO_RESULT, 1: CHANGED}
    moved, foreign = answers.problems
    assert "1 result for a row that has changed since the batch was written" in moved
    assert "row 1 (out.jsonl, line 7). It is ignored. Use" in moved
    said = "6 results with an id that no row of this table has: 'request-1' (out.jsonl, line 1)"
    assert said in foreign
    assert foreign.count("line") == 5
    assert " and 1 more. Give" in foreign


def test_lines_that_are_no_results_are_told(schedule: Schedule, lines: Lines, path: Path) -> None:
    half = json.dumps(lines[3])[:-20]
    others: list[providers.Json | str] = ["", "[1]", '{"custom_id": "x"}', "{}", half]
    providers.write_results(path, [*lines[:3], *others])
    with path.open("ab") as file:
        file.write(b"\xff\xfe\n")
    answers = told(schedule, path)
    assert answers.errors == {3: NO_RESULT}
    (problem,) = answers.problems
    said = "5 lines could not be read: no custom_id (out.jsonl, line 5), not a result"
    assert problem.startswith(said)
    assert "not JSON (out.jsonl, line 8)" in problem


def test_answers_have_a_short_form_and_long_lists_are_cut_short() -> None:
    values = pa.array([None] * 3, pa.string())
    assert repr(Answers(values, {0: "Bad."})) == "<Answers: 2 of 3 rows have an answer>"
    assert repr(Answers(values, {}, ("a", "b"))).endswith("3 of 3 rows have an answer, 2 problems>")
    values = pa.array([None] * 20, pa.string())
    answers = Answers(values, {row: NO_RESULT if row % 2 else "Bad." for row in range(20)})
    assert "No result for 10 rows: 1, 3, 5, 7, 9 and 5 more." in str(answers)
    assert "5 more rows failed; `errors` has them." in str(answers)
    assert len(str(answers).splitlines()) == 9
    six = Answers(pa.array([None] * 6, pa.string()), dict.fromkeys(range(6), "Bad."))
    assert "1 more row failed; `errors` has it." in str(six)


def test_a_file_of_requests_is_refused_and_one_request_among_results_is_told(
    schedule: Schedule, lines: Lines, tmp_path: Path, path: Path
) -> None:
    sent = tmp_path / "batch.jsonl"
    said = r"^batch.jsonl holds requests, not results\. Give the file"
    with pytest.raises(TableError, match=said):
        schedule.read_answers(sent)
    providers.write_results(path, [*lines, providers.requests([sent])[0]])
    (problem,) = told(schedule, path).problems
    assert "a request, not a result (out.jsonl, line 5)" in problem


def test_what_is_not_a_file_or_not_there_is_refused(schedule: Schedule, path: Path) -> None:
    with pytest.raises(TableError, match=r"out.jsonl cannot be read.*Give the result files"):
        schedule.read_answers(path)
    wrong: list[Any] = [5, [5], None]
    said = "it must be a result file or a list of result files"
    for paths in wrong:
        with pytest.raises(ConfigError, match=said):
            schedule.read_answers(paths)


def test_an_empty_table_has_no_answers(path: Path) -> None:
    schedule = reorder({"a": []})
    assert schedule.write_batch(path, "Is it?", "anthropic", model="m").requests == 0
    assert len(schedule.read_answers(path)) == 0
