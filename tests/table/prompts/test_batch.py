"""Batch files: the SDKs accept each line, and marks are those that the bill counts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

from relquery.errors import ConfigError
from relquery.prices.table import PRICES
from relquery.table.prompts import forms
from relquery.table.prompts.files import BatchFiles
from relquery.table.prompts.forms import FormName
from relquery.table.prompts.options import CHAT_COMPLETIONS, MESSAGES, OWN
from relquery.table.prompts.prompts import RowPrompt
from relquery.table.prompts.template import Template
from relquery.table.reorder import reorder
from relquery.table.schedule import Schedule
from tests.table import reference
from tests.table.prompts import providers
from tests.table.strategies import PAID, bags_of, columns_of, letters, tables

MODEL = {"model": "some-model"}
TEMPLATES = st.sampled_from(
    [
        Template(),
        Template("\n{fields}\n"),
        Template("Is it?\n{fields}\nYes or No?", system="Be brief."),
        Template("{fields}\n\n ", system="Be brief."),
    ]
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "batch.jsonl"


def movies(rows: int = 12) -> Schedule:
    table = {
        "title": [f"title {i % 3} " * 9 for i in range(rows)],
        "review": [f"review {i}" for i in range(rows)],
    }
    return reorder(table, "fixed", weight=PAID, tokenizer=letters)


@settings(max_examples=100)
@given(tables(bags=True), TEMPLATES, st.sampled_from(providers.FORMS))
def test_each_line_is_a_request_for_a_row_with_its_prompt(
    tmp_path_factory: pytest.TempPathFactory,
    table: reference.Table,
    template: Template,
    form: FormName,
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    schedule = reorder(
        columns_of(table), "tree", bags=bags_of(table), weight=PAID, tokenizer=letters, seconds=0
    )
    written = schedule.write_batch(path, template, form, **MODEL)
    found = providers.requests(written.paths)
    assert [providers.text(request) for request in found] == [
        prompt.system + prompt.text for prompt in schedule.prompts(template)
    ]
    ids = [request["custom_id"] for request in found]
    assert [int(each.split("-")[1]) for each in ids] == schedule.rows.tolist()
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", each) for each in ids)
    assert written.requests == len(found)


@settings(max_examples=100)
@given(tables(bags=True), TEMPLATES, st.sampled_from(providers.FORMS), st.integers(1, 4))
def test_what_is_written_is_what_the_bill_counts(
    tmp_path_factory: pytest.TempPathFactory,
    table: reference.Table,
    template: Template,
    form: FormName,
    breakpoints: int,
) -> None:
    path = tmp_path_factory.getbasetemp() / "marked.jsonl"
    price = replace(PAID, breakpoints=breakpoints)
    schedule = reorder(
        columns_of(table), "tree", bags=bags_of(table), weight=price, tokenizer=letters, seconds=0
    )
    written = schedule.write_batch(path, template, form, **MODEL)
    found = [providers.blocks(request) for request in providers.requests(written.paths)]
    assert all(text.strip() for blocks in found for text, _ in blocks if len(blocks) > 1)
    assert all(sum(marked for _, marked in blocks) <= breakpoints for blocks in found)
    one_by_one = [[request] for request in providers.requests(written.paths)]
    assert written.bill is not None
    assert providers.caches(one_by_one, len, price.minimum) == written.bill.read


@pytest.mark.parametrize("form", providers.FORMS)
def test_the_system_text_is_marked_if_it_is_all_that_rows_share(path: Path, form: FormName) -> None:
    schedule = reorder({"a": ["x", "y"]}, "original", weight=PAID, tokenizer=letters)
    schedule.write_batch(path, Template(system="Be brief."), form, **MODEL)
    assert [providers.blocks(request)[0] for request in providers.requests([path])] == [
        ("Be brief.", True)
    ] * 2


def test_a_batch_for_anthropic(path: Path) -> None:
    schedule = reorder({"a": ["x" * 9] * 2, "b": ["y", "é\u2028"]}, "fixed", weight=PAID)
    schedule.write_batch(
        path, Template("Is it?", "Be brief."), "anthropic", **MODEL, max_tokens=5, temperature=0.5
    )
    line = path.read_text(encoding="utf-8").splitlines()[0]
    assert json.loads(line) == {
        "custom_id": "row-0-" + json.loads(line)["custom_id"][-8:],
        "params": {
            "model": "some-model",
            "max_tokens": 5,
            "system": "Be brief.",
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Is it?\n"},
                        {
                            "type": "text",
                            "text": "a: xxxxxxxxx\n",
                            "cache_control": {"type": "ephemeral"},
                        },
                        {"type": "text", "text": "b: y\n"},
                    ],
                }
            ],
            "temperature": 0.5,
        },
    }
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2  # the line end is escaped


def test_a_batch_for_openai_caches_by_itself(path: Path) -> None:
    schedule = reorder({"a": ["x" * 5000] * 2}, "original", weight="gpt-5.4-mini")
    written = schedule.write_batch(path, "Is it?", "openai", prompt_cache_key="k", seed=1)
    (request, _) = providers.requests([path])
    assert request["body"] == {
        "model": "gpt-5.4-mini",
        "messages": [{"role": "user", "content": f"Is it?\na: {'x' * 5000}\n"}],
        "max_completion_tokens": 1024,
        "prompt_cache_key": "k",
        "seed": 1,
    }
    assert written.bill is None


def test_models_of_openai_that_charge_for_writing_get_marks(path: Path) -> None:
    schedule = reorder({"a": ["x " * 2000] * 2, "b": ["1", "2"]}, "fixed", weight="gpt-6.1-sol")
    schedule.write_batch(path, "", "openai")
    (request, _) = providers.requests([path])
    content = request["body"]["messages"][0]["content"]
    assert [part.get("prompt_cache_breakpoint") for part in content] == [
        {"mode": "explicit"},
        None,
    ]
    assert request["body"]["prompt_cache_options"] == {"mode": "explicit"}


def test_an_hour_in_the_cache_costs_twice_so_two_rows_do_not_pay(path: Path) -> None:
    text = "x " * 2000
    for rows, marked in ((2, False), (3, True)):
        table = {"a": [text] * rows, "b": [str(i) for i in range(rows)]}
        schedule = reorder(table, "fixed", weight="claude-opus-5")
        schedule.write_batch(path, "", "anthropic", ttl="1h")
        (request, *_) = providers.requests([path])
        controls = [
            block["cache_control"]
            for block in request["params"]["messages"][0]["content"]
            if marked and "cache_control" in block
        ]
        assert controls == [{"type": "ephemeral", "ttl": "1h"}] * marked


def test_the_price_of_the_model_decides_if_no_other_is_given(path: Path) -> None:
    schedule = reorder({"a": ["x " * 2000] * 2, "b": ["1", "2"]}, "fixed")
    written = schedule.write_batch(path, "", "anthropic", model="claude-opus-5")
    assert written.bill is not None
    assert written.bill.price is PRICES["claude-opus-5"]
    assert schedule.write_batch(path, "", "anthropic", **MODEL).bill is None
    other = reorder({"a": ["x " * 2000] * 2}, "fixed", weight="gpt-5.4-mini")
    written = other.write_batch(path, "", "anthropic", model="claude-opus-5")
    assert written.bill is not None
    own = reorder({"a": ["x " * 2000] * 2}, "fixed", weight=PAID)
    written = own.write_batch(path, "", "anthropic", model="claude-opus-5")
    assert written.bill is not None
    assert written.bill.price is PAID


def test_some_rows_can_be_written_again(path: Path) -> None:
    schedule = movies()
    schedule.write_batch(path, "", "openai", **MODEL, rows=[7, 2])
    rows = [int(request["custom_id"].split("-")[1]) for request in providers.requests([path])]
    assert rows == [row for row in schedule.rows.tolist() if row in (2, 7)]
    assert schedule.write_batch(path, "", "openai", **MODEL, rows=[]).requests == 0
    assert path.read_bytes() == b""


def limited(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    form = replace(forms.FORMS["openai"], **limits)
    monkeypatch.setitem(forms.FORMS, "openai", form)


def test_a_batch_beyond_the_limit_of_requests_goes_to_several_files(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, requests=5)
    schedule = movies(12)
    written = schedule.write_batch(path, "", "openai", **MODEL)
    assert [each.name for each in written.paths] == [f"batch-{k}.jsonl" for k in (1, 2, 3)]
    sizes = [len(providers.requests([each])) for each in written.paths]
    assert sizes == [5, 5, 2]
    assert sorted(path.parent.iterdir()) == sorted(written.paths)
    rows = [int(r["custom_id"].split("-")[1]) for r in providers.requests(written.paths)]
    assert rows == schedule.rows.tolist()


def test_no_file_is_larger_than_the_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, size=1000)
    written = movies(12).write_batch(path, "", "openai", **MODEL)
    sizes = [each.stat().st_size for each in written.paths]
    assert max(sizes) <= 1000 < sum(sizes)
    first = providers.requests(written.paths[1:])[0]
    assert sizes[0] + len(json.dumps(first, ensure_ascii=False, separators=(",", ":"))) + 1 > 1000


def lines_of(*texts: str) -> list[bytes]:
    return [text.encode() for text in texts]


@pytest.mark.parametrize(
    ("lines", "size", "expected"),
    [
        (lines_of("abc", "def"), 8, [2]),  # just full: two lines of three bytes and a line break
        (lines_of("abc", "defg"), 8, [1, 1]),
        (lines_of("abcdefg", "x"), 8, [1, 1]),  # a line as large as a file
        (lines_of("éé", "x"), 7, [2]),  # bytes count, not characters
        (lines_of("éé", "é"), 7, [1, 1]),
        (lines_of("ab", "ab", "ab", "ab"), 6, [2, 2]),
    ],
)
def test_files_are_as_full_as_their_limit_allows(
    path: Path, lines: list[bytes], size: int, expected: list[int]
) -> None:
    with BatchFiles(path, 100, size) as files:
        files.add_wave(lines)
    written = [each.read_bytes() for (wave,) in [files.paths] for each in wave]
    assert [text.count(b"\n") for text in written] == expected
    assert b"".join(written) == b"".join(line + b"\n" for line in lines)
    assert all(len(text) <= size for text in written)


@pytest.mark.parametrize("line", ["abcdefgh", "éééé"])
def test_a_line_that_no_file_can_hold_is_refused(path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match="has 8 bytes"), BatchFiles(path, 100, 8) as files:
        files.add_wave(lines_of("a", line))
    assert list(path.parent.iterdir()) == []


def test_files_have_as_many_lines_as_their_limit_allows(path: Path) -> None:
    for count, expected in ((3, [3]), (4, [3, 1]), (6, [3, 3])):
        with BatchFiles(path, 3, 100) as files:
            files.add_wave(lines_of(*"x" * count))
        sizes = [each.read_bytes().count(b"\n") for each in files.paths[0]]
        assert sizes == expected


def test_the_limits_are_those_of_the_providers() -> None:
    limits = {name: (form.requests, form.size) for name, form in forms.FORMS.items()}
    assert limits["openai"] == (50_000, 200_000_000)
    requests, size = limits["anthropic"]
    assert requests == 100_000
    around = len(json.dumps({"requests": []}))  # the lines are sent as one list
    assert 256_000_000 - 1000 < size <= 256_000_000 - around


@pytest.mark.parametrize(
    ("known", "request_type", "older"),
    [
        (CHAT_COMPLETIONS, CompletionCreateParamsNonStreaming, set()),
        (MESSAGES, MessageCreateParamsNonStreaming, {"temperature", "top_k", "top_p"}),
    ],
)
def test_options_are_fields_of_the_api(
    known: frozenset[str], request_type: type, older: set[str]
) -> None:
    fields = set(get_type_hints(request_type)) | older
    assert known <= fields - OWN
    assert {"temperature", "top_p", "tools", "service_tier"} <= known


def test_fields_that_are_not_known_can_be_sent_as_they_are(path: Path) -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    movies(1).write_batch(path, "", "openai", **MODEL, seed=3, extra_body=extra)
    body = json.loads(path.read_text(encoding="utf-8"))["body"]
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["seed"] == 3
    assert "extra_body" not in body


def test_a_batch_without_a_bill_says_why(path: Path) -> None:
    unknown = movies_without_price().write_batch(path, "", "openai", **MODEL)
    assert unknown.bill is None
    assert str(unknown) == (
        f"2 requests in {path}\nNo bill: no price of 'some-model' is known. Give price=, an "
        "rq.Price or the name of one."
    )
    automatic = movies_without_price().write_batch(path, "", "openai", model="gpt-5.4-mini")
    assert automatic.unbilled.startswith(
        "gpt-5.4-mini caches by itself, so the requests contain no"
    )
    assert "rq.reorder(table, weight='gpt-5.4-mini')" in automatic.unbilled
    assert repr(automatic) == "<Batch: 2 requests in 1 file, no bill>"
    billed = movies(12).write_batch(path, "", "anthropic", **MODEL, waves=2)
    assert billed.unbilled == ""
    assert re.fullmatch(r"<Batch: 12 requests in 2 files, [\d.e-]+ USD>", repr(billed))
    assert str(billed).splitlines()[1:] == [
        "Send each wave when the one before it has been answered.",
        billed.cost,
    ]


def movies_without_price() -> Schedule:
    return reorder({"a": ["x", "y"]}, "original")


def test_a_schedule_has_a_short_form_and_a_summary() -> None:
    schedule = movies(12)
    assert repr(schedule) == "<Schedule: 12 rows of 2 fields, fixed, hit rate 76.4%>"
    assert len(repr(schedule.prompts(""))) < 40
    first, numbers, rate, *more = str(schedule).splitlines()
    assert first.startswith("12 rows of 2 fields, ordered by fixed in ")
    assert numbers == f"Row numbers: {', '.join(map(str, schedule.rows[:5].tolist()))}, ..."
    assert rate == "Hit rate in characters: 76.4%"
    assert "tokens sent, of which hit:" in more[0]
    assert "without a cache" in more[-1]
    assert str(reorder({"a": []})).count("\n") == 1


def test_after_an_error_no_file_is_written_or_replaced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("before", encoding="utf-8")
    limited(monkeypatch, size=300, requests=1)
    schedule = reorder({"a": ["x", "y" * 400]}, "original")
    with pytest.raises(
        ConfigError, match=r"request has \d+ bytes, .*\(300\). Shorten its row: .*row-1-"
    ):
        schedule.write_batch(path, "", "openai", **MODEL)
    assert path.read_text(encoding="utf-8") == "before"
    assert list(path.parent.iterdir()) == [path]


def test_prompts_are_written_a_few_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    schedule = reorder({"a": [f"cell {i}" for i in range(5000)]}, "original")
    source = type(schedule.source)
    cells = source.cells

    def counted(self: Any, sent: Any) -> Any:
        asked.append(len(sent))
        return cells(self, sent)

    monkeypatch.setattr(source, "cells", counted)
    schedule.write_batch(path, "", "openai", **MODEL)
    assert max(asked) <= 1024
    assert len(providers.requests([path])) == 5000


def test_waves_go_to_files_of_their_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = movies(12)
    written = schedule.write_batch(path, "", "openai", **MODEL, waves=2)
    assert [[each.name for each in wave] for wave in written.waves] == [
        ["batch-wave1.jsonl"],
        ["batch-wave2.jsonl"],
    ]
    assert [len(providers.requests(wave)) for wave in written.waves] == [3, 9]
    assert written.requests == 12
    limited(monkeypatch, requests=5)
    written = schedule.write_batch(path, "", "openai", **MODEL, waves=2)
    assert [each.name for each in written.waves[1]] == [
        "batch-wave2-1.jsonl",
        "batch-wave2-2.jsonl",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"form": "opena"}, "Did you mean 'openai'"),
        ({"form": "OpenAI"}, "Did you mean 'openai'"),
        ({"form": "gemini"}, r"it must be 'openai' \(OpenAI's Batch API\) or 'anthropic'"),
        ({"form": ["openai"]}, r"form is \['openai'\]; it must be 'openai'"),
        ({"max_token": 5}, "neither an argument of write_batch nor .* Did you mean 'max_tokens'"),
        ({"temprature": 0}, "OpenAI's chat completions. Did you mean 'temperature'"),
        ({"form": "anthropic", "stop_sequence": ["x"]}, "Messages. Did you mean 'stop_sequences'"),
        ({"form": "anthropic", "seed": 1}, "give extra_body={'seed': ...}"),
        ({"extra_body": 5}, "extra_body is an int; it must be a dict"),
        ({"extra_body": {"n": 2}}, "n cannot be an option"),
        ({"model": None}, "No model is given. Give model="),
        ({"model": 5}, "model is 5"),
        ({"max_tokens": 0}, "max_tokens is 0; it must be 1 or more"),
        ({"ttl": "2h"}, "ttl '2h' is not known"),
        ({"ttl": "1h"}, "only matters with form='anthropic'"),
        ({"ttl": "1h", "form": "anthropic"}, "no prefix is marked"),
        ({"waves": 0}, "waves is 0; it must be a whole number of at least 1"),
        ({"messages": []}, "messages cannot be an option"),
        ({"n": 2}, "each row has one answer"),
        ({"temperature": float("nan")}, "cannot be written as JSON"),
        ({"tools": {1, 2}}, "cannot be written as JSON"),
        ({"rows": [3]}, "Row 3 is not in the table, which has 2 rows"),
        ({"rows": [-1]}, "Row -1 is not in the table"),
        ({"rows": "all"}, "rows is 'all'"),
        (
            {"price": "claude-opus-5"},
            "form is 'openai', which cannot mark .* Give form='anthropic'",
        ),
        (
            {"price": "gpt-6.1-sol", "form": "anthropic"},
            "form is 'anthropic', which cannot mark",
        ),
        ({"template": "{title}"}, "can only have"),
        ({"path": "/no/such/folder/x.jsonl"}, "the folder /no/such/folder does not exist"),
        ({"path": "."}, "is a folder"),
        ({"path": 5}, "path is an int; it must be the file to write"),
        (
            {"path": "Is it?", "template": "b.jsonl"},
            r"'b.jsonl', which is the name of a file. The file comes first: write_batch\('b.jsonl'",
        ),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(
    path: Path, settings: dict[str, Any], message: str
) -> None:
    schedule = reorder({"a": ["x", "y"]}, "original")
    known = {"path": path, "template": "", "form": "openai", **MODEL, **settings}
    with pytest.raises(ConfigError, match=message):
        schedule.write_batch(**known)
    assert not path.exists()


def test_ids_tell_rows_and_their_cells_apart(path: Path) -> None:
    def ids(table: dict[str, list[str | None]], **options: Any) -> list[str]:
        reorder(table, "original", **options).write_batch(path, "", "openai", **MODEL)
        return [request["custom_id"] for request in providers.requests([path])]

    first = ids({"a": ["x", "x"], "b": ["y", "z"]})
    assert len(set(first)) == 2
    assert ids({"a": ["x", "x"], "b": ["y", "z"]}, bags=[["a", "b"]]) == first
    changed = ids({"a": ["x", "x"], "b": ["y", "w"]})
    assert [a == b for a, b in zip(first, changed, strict=True)] == [True, False]


@pytest.mark.parametrize(
    ("parts", "breakpoints", "system", "expected"),
    [
        (("\n", "a\n", "b\n", ""), (1, 2), "S", [("S", True), ("\na\n", True), ("b\n", False)]),
        (("", "\n", "b\n", ""), (2,), "", [("\nb\n", False)]),
        (("Q", "\n", "b\n", ""), (2,), "", [("Q", True), ("\nb\n", False)]),
        (("Q", "a\n", "\n", ""), (2,), "", [("Q", False), ("a\n\n", False)]),
        (("Q", "a\n", "b\n", " "), (4,), "", [("Q", False), ("a\n", False), ("b\n ", True)]),
    ],
)
def test_no_block_is_blank_and_marks_stay_where_prompts_agree(
    parts: tuple[str, ...],
    breakpoints: tuple[int, ...],
    system: str,
    expected: list[tuple[str, bool]],
) -> None:
    prompt = RowPrompt(0, system, ("a", "b"), parts, breakpoints)
    for form in forms.FORMS.values():
        settings = forms.Settings("m", 1, {}, "5m", explicit=False)
        found = providers.blocks(form.request(prompt, "row-0-00000000", settings))
        marked = [block for block in found if block[1]]
        assert "".join(text for text, _ in found) == system + "".join(parts)
        assert marked == [block for block in expected if block[1]]
        assert found == expected or not marked
