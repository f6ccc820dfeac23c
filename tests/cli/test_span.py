"""Span queries on the command line."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Run

MODEL = "random:layers=1,hidden=64,heads=1"
WIRE, TREE = (Path(__file__).with_name(f"query.{form}") for form in ("json", "span"))


@pytest.fixture
def span(relquery: Run) -> Run:
    return partial(relquery, "span")


def test_run_answers_a_query_in_the_wire_form(span: Run) -> None:
    out, err = span("run", WIRE, "--var", "n=3", "--max-tokens", "6", "-m", MODEL, "--json")
    document = json.loads(out)
    assert [g["where"] for g in document["generations"]][-1] == "generate"
    assert len(document["generations"]) == 4
    assert all(g["output_tokens"] <= 6 for g in document["generations"])
    assert "judging" in err
    assert "4 generations" in err


def test_run_prints_the_text_notes_and_cost(span: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.randbits", lambda bits: 7)  # other draws may give a blank answer
    out, err = span("run", WIRE, "--var", "n=5", "--max-tokens", "2", "-m", MODEL)
    assert out.strip()
    assert "Note: generate/seq[1]/plus[0]/generate: cut off after 2 tokens" in err
    assert "more notes" in err


def test_run_retrieves_from_a_file(span: Run, tmp_path: Path) -> None:
    docs = tmp_path / "docs.txt"
    docs.write_text("A dog.\n\nA cat in a hat.\n", encoding="utf-8")
    span("run", TREE, "--corpus", f"docs={docs}", "-m", MODEL)
    out, _ = span("explain", TREE, "--corpus", f"docs={docs}", "-m", MODEL)
    assert 'user "A cat in a hat."' in out
    assert "A dog" not in out


def test_a_query_comes_from_standard_input_in_either_form(span: Run) -> None:
    """The model in the file is taken unless one is given."""
    span("run", "-", "-m", MODEL, "--max-tokens", "2", stdin='generate\n  user "a"')
    query = json.dumps({"g": {"model": "random:layers=0", "input": {"user": "a"}}})
    assert "layers" in span("run", "-", stdin=query, code=1)[1]
    span("run", "-", "-m", MODEL, "--max-tokens", "2", stdin=query)


def test_explain_shows_rules_and_cached_tokens(span: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.randbits", lambda bits: 7)  # other draws may end early
    arguments = ("explain", WIRE, "--var", "n=2", "--max-tokens", "40", "-m", MODEL)
    out, _ = span(*arguments)
    assert "distribute_plus at generate/seq[1]/plus" in out
    assert "generate: waits for 2 others" in out
    out, _ = span(*arguments, "--warm")
    exchanges = [line.split() for line in out.splitlines() if "independent" in line]
    assert len(exchanges) == 2
    assert all(int(cached) >= 16 for _, cached, *_ in exchanges)


def test_draw_writes_a_query_that_is_read_again(span: Run, tmp_path: Path) -> None:
    target = tmp_path / "out.span"
    out, _ = span("draw", WIRE, "--var", "n=2")
    target.write_text(out, encoding="utf-8")
    assert out.startswith("generate")
    assert out == span("draw", str(target))[0]


def test_what_is_wrong_is_an_error_with_a_remedy(span: Run, tmp_path: Path) -> None:
    for query, arguments, message in (
        (WIRE, "--var n", "write NAME=..."),
        (WIRE, "", "--var NAME=VALUE"),
        (WIRE, "--var n=2 --corpus docs", "write NAME=..."),
        (TREE, "--var n=2", "write the values into the text"),
        (str(tmp_path / "none.json"), "", ""),
    ):
        assert message in span("run", query, *arguments.split(), "-m", MODEL, code=1)[1]
    query = 'generate\n  seq\n    user "x"\n    generate\n      user "{}"'.format("long " * 9000)
    _, err = span("run", "-", "-m", f"{MODEL},context=256", code=1, stdin=query)
    assert "At generate/seq[1]/generate: The prompt has" in err
    (tmp_path / "bad.json").write_bytes(b'{"user": "\xff"}')
    assert "not UTF-8" in span("run", str(tmp_path / "bad.json"), code=1)[1]


GIVEN = [
    (b'\xef\xbb\xbf{"user": "hi"}', 0, 'user "hi"'),
    (b'\xef\xbb\xbfuser "hi"', 0, 'user "hi"'),
    (b'{"user": "\xe9"}', 1, "Byte 10 of standard input is not UTF-8"),
    (b"[1]", 1, "got list"),
    (b"null", 1, "expected an object"),
]


@pytest.mark.parametrize(("given", "status", "shown"), GIVEN)
def test_standard_input_is_utf_8(span: Run, given: bytes, status: int, shown: str) -> None:
    out, err = span("draw", "-", stdin=given, code=status)
    assert shown in (err if status else out)
