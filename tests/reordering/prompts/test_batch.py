"""Batch files: the SDKs accept each line, and marks are those that the bill counts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_type_hints

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

from relquery.errors import ConfigError
from relquery.prices.price import Price
from relquery.prices.table import PRICES
from relquery.reordering.prompts import forms
from relquery.reordering.prompts.batch import Batch, BatchFiles
from relquery.reordering.prompts.forms import CHAT_COMPLETIONS, MESSAGES, OWN, FormName
from relquery.reordering.prompts.prompts import RowPrompt, TableSource, Template
from relquery.reordering.reorder import reorder
from relquery.reordering.schedule import Schedule
from tests.cases import values
from tests.reordering import reference
from tests.reordering.prompts import providers
from tests.reordering.strategies import PAID, letters, tables

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


def write(
    schedule: Schedule,
    path: Path,
    template: str | Template = "",
    form: str = "openai",
    **options: Any,
) -> Batch:
    return schedule.write_batch(
        path, template, cast(FormName, form), **{"model": "some-model", **options}
    )


def body(path: Path) -> Any:
    """What the first request says to the model."""
    request = providers.requests([path])[0]
    return request["params"] if "params" in request else request["body"]


def rows_of(paths: Iterable[Path]) -> list[int]:
    return [int(each["custom_id"].split("-")[1]) for each in providers.requests(paths)]


def movies(rows: int = 12) -> Schedule:
    table = {
        "title": [f"title {i % 3} " * 9 for i in range(rows)],
        "review": [f"review {i}" for i in range(rows)],
    }
    return reorder(table, "fixed", weight=PAID, tokenizer=letters)


@given(tables(bags=True), TEMPLATES, st.sampled_from(providers.FORMS), st.integers(1, 4))
def test_each_line_is_a_request_for_a_row_with_its_prompt_and_the_marks_that_the_bill_counts(
    tmp_path_factory: pytest.TempPathFactory,
    table: reference.Table,
    template: Template,
    form: FormName,
    breakpoints: int,
) -> None:
    price = replace(PAID, breakpoints=breakpoints)
    schedule = reorder(
        table.columns, "tree", bags=table.bags, weight=price, tokenizer=letters, seconds=0
    )
    written = write(schedule, tmp_path_factory.getbasetemp() / "any.jsonl", template, form)
    found = providers.requests(written.paths)
    assert [providers.text(request) for request in found] == [
        prompt.system + prompt.text for prompt in schedule.prompts(template)
    ]
    assert rows_of(written.paths) == schedule.rows.tolist()
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", each["custom_id"]) for each in found)
    assert written.requests == len(found)
    blocks = [providers.blocks(request) for request in found]
    assert all(text.strip() for each in blocks for text, _ in each if len(each) > 1)
    assert all(sum(marked for _, marked in each) <= breakpoints for each in blocks)
    assert written.bill is not None
    read = providers.caches([[request] for request in found], len, price.minimum)
    assert read == written.bill.read


@pytest.mark.parametrize("form", providers.FORMS)
def test_the_system_text_is_marked_if_it_is_all_that_rows_share(path: Path, form: FormName) -> None:
    schedule = reorder({"a": ["x", "y"]}, "original", weight=PAID, tokenizer=letters)
    write(schedule, path, Template(system="Be brief."), form)
    assert [providers.blocks(request)[0] for request in providers.requests([path])] == [
        ("Be brief.", True)
    ] * 2


def test_a_batch_for_anthropic(path: Path) -> None:
    schedule = reorder({"a": ["x" * 9] * 2, "b": ["y", "é\u2028"]}, "fixed", weight=PAID)
    template = Template("Is it?", "Be brief.")
    write(schedule, path, template, "anthropic", max_tokens=5, temperature=0.5)
    marked = {"type": "text", "text": "a: xxxxxxxxx\n", "cache_control": {"type": "ephemeral"}}
    before, after = ({"type": "text", "text": text} for text in ("Is it?\n", "b: y\n"))
    first, _ = path.read_text(encoding="utf-8").splitlines()  # the line end is escaped
    assert json.loads(first) == {
        "custom_id": "row-0-" + json.loads(first)["custom_id"][-8:],
        "params": {
            "model": "some-model",
            "max_tokens": 5,
            "system": "Be brief.",
            "messages": [{"role": "user", "content": [before, marked, after]}],
            "temperature": 0.5,
        },
    }


def test_a_batch_for_openai_caches_by_itself(path: Path) -> None:
    schedule = reorder({"a": ["x" * 5000] * 2}, "original", weight="gpt-5.4-mini")
    written = schedule.write_batch(path, "Is it?", "openai", prompt_cache_key="k", seed=1)
    assert body(path) == {
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
    marks = [part.get("prompt_cache_breakpoint") for part in body(path)["messages"][0]["content"]]
    assert marks == [{"mode": "explicit"}, None]
    assert body(path)["prompt_cache_options"] == {"mode": "explicit"}


def test_an_hour_in_the_cache_costs_twice_so_two_rows_do_not_pay(path: Path) -> None:
    for rows, marked in ((2, 0), (3, 1)):
        table = {"a": ["x " * 2000] * rows, "b": [str(i) for i in range(rows)]}
        schedule = reorder(table, "fixed", weight="claude-opus-5")
        schedule.write_batch(path, "", "anthropic", ttl="1h")
        assert len(providers.requests([path])) == rows
        content = body(path)["messages"][0]["content"]
        controls = [part["cache_control"] for part in content if "cache_control" in part]
        assert controls == [{"type": "ephemeral", "ttl": "1h"}] * marked


def test_the_price_of_the_model_decides_if_no_other_is_given(path: Path) -> None:
    def price(weight: str | Price, model: str) -> Price | None:
        table = {"a": ["x " * 2000] * 2, "b": ["1", "2"]}
        written = write(reorder(table, "fixed", weight=weight), path, "", "anthropic", model=model)
        return written.bill.price if written.bill else None

    assert price("tokens", "claude-opus-5") is PRICES["claude-opus-5"]
    assert price("tokens", "some-model") is None
    assert price("gpt-5.4-mini", "claude-opus-5") is PRICES["claude-opus-5"]
    assert price(PAID, "claude-opus-5") is PAID


def test_some_rows_can_be_written_again(path: Path) -> None:
    schedule = movies()
    write(schedule, path, rows=[7, 2])
    assert rows_of([path]) == [row for row in schedule.rows.tolist() if row in (2, 7)]
    assert write(schedule, path, rows=[]).requests == 0
    assert path.read_bytes() == b""


def limited(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    form = replace(forms.FORMS["openai"], **limits)
    monkeypatch.setitem(forms.FORMS, "openai", form)


def names(paths: Iterable[Path]) -> list[str]:
    return [each.name for each in paths]


def test_a_batch_beyond_the_limit_of_requests_goes_to_several_files(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, requests=5)
    schedule = movies(12)
    written = write(schedule, path)
    assert names(written.paths) == [f"batch-{k}.jsonl" for k in (1, 2, 3)]
    assert [len(providers.requests([each])) for each in written.paths] == [5, 5, 2]
    assert sorted(path.parent.iterdir()) == sorted(written.paths)
    assert rows_of(written.paths) == schedule.rows.tolist()


def test_files_are_as_full_as_their_limits_allow(path: Path) -> None:
    for texts, size, expected in values(__file__, "full_files.txt"):
        lines = [text.encode() for text in texts]
        with BatchFiles(path, 3, size) as files:
            files.add_wave(lines)
        written = [each.read_bytes() for (wave,) in [files.paths] for each in wave]
        assert [text.count(b"\n") for text in written] == expected
        assert b"".join(written) == b"".join(line + b"\n" for line in lines)
        assert all(len(text) <= size for text in written)


@pytest.mark.parametrize("line", ["abcdefgh", "éééé"])
def test_a_line_that_no_file_can_hold_is_refused(path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match="has 8 bytes"), BatchFiles(path, 100, 8) as files:
        files.add_wave([b"a", line.encode()])
    assert list(path.parent.iterdir()) == []


def test_the_limits_are_those_of_the_providers() -> None:
    limits = {name: (form.requests, form.size) for name, form in forms.FORMS.items()}
    assert limits["openai"] == (50_000, 200_000_000)
    requests, size = limits["anthropic"]
    assert requests == 100_000
    around = len(json.dumps({"requests": []}))  # the lines are sent as one list
    assert 256_000_000 - 1000 < size <= 256_000_000 - around


def test_options_are_fields_of_the_api() -> None:
    older = {"temperature", "top_k", "top_p"}
    for known, fields in (
        (CHAT_COMPLETIONS, {*get_type_hints(CompletionCreateParamsNonStreaming)}),
        (MESSAGES, {*get_type_hints(MessageCreateParamsNonStreaming), *older}),
    ):
        assert known <= fields - OWN
        assert {"temperature", "top_p", "tools", "service_tier"} <= known


def test_fields_that_are_not_known_can_be_sent_as_they_are(path: Path) -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    write(movies(1), path, seed=3, extra_body=extra)
    sent = json.loads(path.read_text(encoding="utf-8"))["body"]
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}
    assert sent["seed"] == 3
    assert "extra_body" not in sent


def test_a_batch_without_a_bill_says_why(path: Path) -> None:
    two = reorder({"a": ["x", "y"]}, "original")
    unknown = write(two, path)
    assert unknown.bill is None
    assert str(unknown) == (
        f"2 requests in {path}\nNo bill: no price of 'some-model' is known. Give price=, an "
        "rq.Price or the name of one."
    )
    automatic = write(two, path, model="gpt-5.4-mini")
    assert automatic.unbilled.startswith(
        "gpt-5.4-mini caches by itself, so the requests contain no"
    )
    assert "rq.reorder(table, weight='gpt-5.4-mini')" in automatic.unbilled
    assert repr(automatic) == "<Batch: 2 requests in 1 file, no bill>"
    billed = write(movies(12), path, "", "anthropic", waves=2)
    assert billed.unbilled == ""
    assert re.fullmatch(r"<Batch: 12 requests in 2 files, [\d.e-]+ USD>", repr(billed))
    _, *more = str(billed).splitlines()
    assert more == ["Send each wave when the one before it has been answered.", billed.cost]


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
    said = r"request has \d+ bytes, .*\(300\). Shorten its row: .*row-1-"
    with pytest.raises(ConfigError, match=said):
        write(schedule, path)
    assert path.read_text(encoding="utf-8") == "before"
    assert list(path.parent.iterdir()) == [path]


def test_prompts_are_written_a_few_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    schedule = reorder({"a": [f"cell {i}" for i in range(2500)]}, "original")
    cells = TableSource.cells

    def counted(self: TableSource, sent: Any) -> Any:
        asked.append(len(sent))
        return cells(self, sent)

    monkeypatch.setattr(TableSource, "cells", counted)
    write(schedule, path)
    assert max(asked) <= 1024
    assert path.read_bytes().count(b"\n") == 2500


def test_waves_go_to_files_of_their_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = movies(12)
    written = write(schedule, path, waves=2)
    assert list(map(names, written.waves)) == [["batch-wave1.jsonl"], ["batch-wave2.jsonl"]]
    assert [len(providers.requests(wave)) for wave in written.waves] == [3, 9]
    assert written.requests == 12
    limited(monkeypatch, requests=5)
    written = write(schedule, path, waves=2)
    assert names(written.waves[1]) == ["batch-wave2-1.jsonl", "batch-wave2-2.jsonl"]


WRONG: list[tuple[dict[str, Any], str]] = values(__file__, "batch_refused.txt")


def test_wrong_settings_are_refused_before_anything_is_written(path: Path) -> None:
    schedule = reorder({"a": ["x", "y"]}, "original")
    for wrong, message in WRONG:
        with pytest.raises(ConfigError, match=message):
            write(schedule, **{"path": path, **wrong})
        assert not path.exists()


def test_ids_tell_rows_and_their_cells_apart(path: Path) -> None:
    def ids(table: dict[str, list[str]], **options: Any) -> list[str]:
        write(reorder(table, "original", **options), path)
        return [request["custom_id"] for request in providers.requests([path])]

    first = ids({"a": ["x", "x"], "b": ["y", "z"]})
    assert len(set(first)) == 2
    assert ids({"a": ["x", "x"], "b": ["y", "z"]}, bags=[["a", "b"]]) == first
    changed = ids({"a": ["x", "x"], "b": ["y", "w"]})
    assert [a == b for a, b in zip(first, changed, strict=True)] == [True, False]


Marked = list[tuple[str, bool]]
BLOCKS: list[tuple[tuple[str, ...], tuple[int, ...], str, Marked]] = values(__file__, "blocks.txt")


def test_no_block_is_blank_and_marks_stay_where_prompts_agree() -> None:
    for parts, breakpoints, system, expected in BLOCKS:
        prompt = RowPrompt(0, system, ("a", "b"), parts, breakpoints)
        for form in forms.FORMS.values():
            settings = forms.BatchSettings("m", 1, {}, "5m", explicit=True)
            found = providers.blocks(form.writer(settings)(prompt, "row-0-00000000"))
            marked = [block for block in found if block[1]]
            assert "".join(text for text, _ in found) == system + "".join(parts)
            assert marked == [block for block in expected if block[1]]
            assert found == expected or not marked
