"""What is known of each answer is stored beside it, failures too, and never a secret."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Json
from benchmarks.standin.server import CHAT, MESSAGES, Reply, question, serving
from benchmarks.standin.wires.anthropic import message
from benchmarks.standin.wires.openai_chat import completion
from relquery.connection import connect
from relquery.errors import ModelError
from relquery.ledger import Keys, Ledger, StoredCall, turns
from relquery.ledger.stored import without_secrets
from relquery.prompt import Answer, Compared, Finish, Sampling, Span
from tests.cases import cases

PROMPTS = [(Span(f"question {number}"),) for number in range(4)]
SAMPLING = Sampling(max_tokens=9, stop=("\n",))
KEYS = Keys.of("sha256:abc", PROMPTS, SAMPLING)


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as file:
        return file.execute(query).fetchall()


def costs(answer: Answer) -> float:
    return answer.output_tokens / 100


def test_each_answer_has_its_facts_and_each_failure_too(path: Path) -> None:
    call = StoredCall("openai:m", SAMPLING, costs, lambda: 1_800_000_000.0)
    answers = [
        Answer("a", Finish.STOP, None, 10, 4, 2, 3, written_tokens=5),
        Answer(None, Finish.ERROR, "HTTP 500", 10, attempts=6),
        Answer("cut", Finish.LENGTH, "Cut off.", 10, 0, 9),
    ]
    with closing(Ledger.open(path)) as ledger:
        ledger.run = 7
        places = np.array([3, 1, 2])
        with turns([PROMPTS[at] for at in places], places, ledger, KEYS, call) as some:
            for turn in some:
                for index, _ in enumerate(turn.prompts):
                    turn.on_answer(index, answers[index])
    settings = {"max_tokens": 9, "temperature": 0.0, "stop": ["\n"]}
    ((number, model, stored),) = rows(path, "SELECT * FROM calls")
    assert (model, json.loads(stored)) == ("openai:m", settings)
    shared = "key, call, run, prompt, cached_tokens, written_tokens, attempts, usd, at"
    at = 1_800_000_000.0
    assert rows(path, f"SELECT {shared} FROM facts") == [
        (KEYS.whole[3], number, 7, KEYS.whole[3], 4, 5, 3, 0.02, at)
    ]
    more = "prompt_tokens, output_tokens, finish, error"
    assert rows(path, f"SELECT {shared}, {more} FROM failures ORDER BY at, rowid") == [
        (KEYS.whole[1], number, 7, KEYS.whole[1], 0, 0, 6, 0.0, at, 10, 0, "error", "HTTP 500"),
        (KEYS.whole[2], number, 7, KEYS.whole[2], 0, 0, 1, 0.09, at, 10, 9, "length", "Cut off."),
    ]


def test_what_decides_a_comparison_is_known_by_its_own_key(path: Path) -> None:
    compared = Compared.by(Sampling(), ("Yes",))
    keys = Keys.of("m", PROMPTS, compared)
    with closing(Ledger.open(path)) as ledger:
        call = StoredCall("m", compared)
        with turns(PROMPTS[:1], np.array([0]), ledger, keys, call) as some:
            next(some).on_answer(0, Answer("N", Finish.DECIDED))
    assert rows(path, "SELECT key FROM facts") == [(keys.decided[0],)]
    ((settings,),) = rows(path, "SELECT settings FROM calls")
    assert json.loads(settings)["texts"] == ["Yes"]


SECRET = "sk-proj-abcDEF123456_secret"


def leaky(body: Json) -> Reply:
    """A server that puts the key into its errors."""
    if "1" in question(body):
        return Refused(400, f"Bearer {SECRET} may not ask this of http://me:hunter22@host/v1")
    return completion("fine")


def test_the_key_is_nowhere_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    with (
        serving(leaky) as chat,
        connect("openai:m", base_url=chat.url, api_key=SECRET, ledger=path) as con,
    ):
        with pytest.warns(match=r"Bearer \*\*\* may not ask this of http://\*\*\*@host") as warned:
            result = con.sql("SELECT LLM('Say it.', id) AS up FROM (VALUES (1), (2), (3)) t(id)")
        assert chat.keys == {SECRET}
    assert SECRET not in str(result.errors[0])
    assert SECRET not in str(warned[0].message)
    ((error,),) = rows(path, "SELECT error FROM failures")
    assert "may not ask this" in error
    assert rows(path, "SELECT count(*) FROM facts") == [(2,)]
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for secret in (SECRET, "abcDEF123456", "hunter22", "Say it."):  # nor is the prompt
        assert secret.encode() not in written


def test_failures_are_stored_where_no_call_has_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    with (
        serving(leaky) as chat,
        connect("openai:m", base_url=chat.url, api_key=SECRET, ledger=path) as con,
        pytest.warns(match="may not ask this"),
    ):
        con.sql("SELECT LLM('Say it.', id) AS up FROM (VALUES (1)) t(id)")
    assert rows(path, "SELECT count(*) FROM failures") == [(1,)]


REFUSALS: dict[str, tuple[str, Any]] = {
    "refusal": ("openai", lambda: completion(None, refusal="I must not.")),
    "filter": ("openai", lambda: completion(None, "content_filter")),
    "length": ("openai", lambda: completion("cut", "length")),
    "400": ("openai", lambda: Refused(400, "not this one")),
    "anthropic": ("anthropic", lambda: message(None, "refusal")),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_rows_that_always_fail_keep_no_run_from_the_rows_that_are_known(
    kind: str, tmp_path: Path
) -> None:
    path, (provider, bad) = tmp_path / "l.db", REFUSALS[kind]
    good = completion if provider == "openai" else message

    def answer(body: Json) -> Reply:
        return bad() if "bad" in question(body) else good("fine")

    table = "(SELECT i || CASE WHEN i % 3 = 0 THEN ' bad' ELSE '' END AS a FROM range(90) t(i))"
    with serving(answer, CHAT if provider == "openai" else MESSAGES) as chat:
        base = chat.url if provider == "openai" else chat.root
        for run in range(3):
            with connect(f"{provider}:m", base_url=base, api_key="k", ledger=path) as con:
                with pytest.warns(match="30 LLM values are missing"):
                    result = con.sql(f"SELECT LLM('Say it.', a) AS up FROM {table}")
                assert result.fetchall().count(("fine",)) == 60
                assert len(result.errors) == 30
            assert len(chat.asked) == 90 + 30 * run
            assert rows(path, "SELECT count(*) FROM failures") == [(30 * (run + 1),)]


def test_calls_of_a_query_that_stops_are_in_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    with (
        serving(lambda body: completion(None, refusal="I must not.")) as chat,
        connect("openai:m", base_url=chat.url, api_key="k", ledger=path) as con,
        pytest.raises(ModelError, match="all failed alike"),
    ):
        con.sql("SELECT LLM('Say it.', i) FROM range(90) t(i)")
    ((count, tokens),) = rows(path, "SELECT count(*), sum(prompt_tokens) FROM failures")
    assert (count, tokens) == (len(chat.asked), 10 * len(chat.asked))


def test_errors_are_stored_without_what_looks_like_a_secret() -> None:
    for text, clean in [*cases(__file__, "secrets"), ("x" * 600, "x" * 497 + "...")]:
        assert without_secrets(text) == clean
    for text in ("max_tokens: 500000, monkey: banana", "The task-force asked for key-value pairs"):
        assert without_secrets(text) == text
