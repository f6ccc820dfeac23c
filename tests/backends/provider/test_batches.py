"""Batches are submitted once, found again whatever happens, and answer every prompt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.standin.batches import Batches, Outcome, serving
from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Json
from benchmarks.standin.server import question
from benchmarks.standin.wires.anthropic import message
from benchmarks.standin.wires.openai_chat import completion
from relquery.backends.provider import batch_run as run
from relquery.backends.provider.batch_apis import OpenAIBatches
from relquery.backends.provider.batch_backend import BatchBackend
from relquery.backends.provider.batch_jobs import BatchStore
from relquery.backends.provider.client import ProviderClient
from relquery.backends.provider.config import ProviderConfig
from relquery.backends.provider.providers import ANTHROPIC, GEMINI, OPENAI, Provider
from relquery.backends.provider.server import ProviderServer
from relquery.backends.provider.spending import Amount, Spending
from relquery.errors import BudgetError, ConfigError, ModelError, PendingError
from relquery.prompt import Answer, Sampling, Span


@pytest.fixture(params=[OPENAI, ANTHROPIC], ids=lambda each: each.name)
def provider(request: pytest.FixtureRequest) -> Provider:
    found: Provider = request.param
    return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a batch was taken is looked up at once, and batches are looked at without pause."""
    monkeypatch.setattr(run, "_POLLS", (0.0, 0.0))
    monkeypatch.setattr(run, "_GRACE_SECONDS", 0.0)


def replied(body: Json, text: str) -> Json:
    return message(text) if body["model"].startswith("claude") else completion(text)


def echo(body: Json) -> Json:
    return replied(body, f"<{question(body)}>")


def backend(server: Batches, path: Path, provider: Provider, **options: Any) -> BatchBackend:
    url = server.root if provider is ANTHROPIC else server.url
    given: dict[str, Any] = {"batch": True, "api": None if provider is ANTHROPIC else "chat"}
    config = ProviderConfig(
        base_url=url, api_key="k", batches=path, max_retries=2, **given | options
    )
    return BatchBackend("claude-x" if provider is ANTHROPIC else "gpt-x", config, provider)


def asked(of: BatchBackend, texts: Sequence[str], **sampling: Any) -> list[Answer]:
    found = dict(of.answer([(Span(text),) for text in texts], Sampling(**sampling)))
    assert sorted(found) == list(range(len(texts)))
    return [found[at] for at in range(len(texts))]


Ask = Callable[..., list[Answer]]


def asking(path: Path, provider: Provider) -> Ask:
    """Asks a server by a new backend, with the batches that earlier ones have written down."""

    def ask(server: Batches, texts: str, batch: Any = True, **sampling: Any) -> list[Answer]:
        return asked(backend(server, path, provider, batch=batch), texts, **sampling)

    return ask


@pytest.fixture
def ask(tmp_path: Path, provider: Provider) -> Ask:
    return asking(tmp_path / "b", provider)


@pytest.fixture
def ask_openai(tmp_path: Path) -> Ask:
    return asking(tmp_path / "b", OPENAI)


def texts_of(answers: Sequence[Answer]) -> list[str | None]:
    return [answer.text for answer in answers]


def test_every_prompt_gets_its_own_answer(provider: Provider, ask: Ask) -> None:
    with serving(echo, looks=3) as server:
        answers = ask(server, "abc")
        assert texts_of(answers) == ["<a>", "<b>", "<c>"]
        assert {(each.prompt_tokens, each.output_tokens) for each in answers} == {(10, 2)}
        assert server.creations == 1
        (batch,) = server.batches
        assert [question(body) for _, body in batch.lines] == ["a", "b", "c"]
        if provider is OPENAI:
            assert list(batch.fields["metadata"]) == ["relquery"]


@pytest.mark.parametrize(
    ("provider", "sampling", "name"),
    [(ANTHROPIC, {}, "temperature"), (OPENAI, {"temperature": 1.0, "top_k": 3}, "top_k")],
)
def test_settings_unknown_to_the_sdk_are_in_it(
    sampling: dict[str, Any], name: str, ask: Ask
) -> None:
    with serving(echo) as server:
        ask(server, "a", **sampling)
        ((_, body),) = server.batches[0].lines
        assert name in body
        assert "extra_body" not in body


def test_labels_and_schemas_are_read_as_those_of_live_calls(ask: Ask) -> None:
    chosen = json.dumps({"answer": "Yes"})
    with serving(lambda body: replied(body, chosen)) as server:
        assert texts_of(ask(server, "a", labels=("Yes", "No"))) == ["Yes"]


def test_a_batch_that_runs_is_pending_and_is_found_again(ask: Ask) -> None:
    with serving(echo, looks=3) as server:
        for _ in range(2):
            with pytest.raises(PendingError, match=r"A batch of 2 requests is with .* 24 hours"):
                ask(server, "ab", "submit")
        assert texts_of(ask(server, "ba", "submit")) == ["<b>", "<a>"]
        assert server.creations == 1


def test_a_batch_that_an_earlier_version_submitted_is_found(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(echo, looks=3) as server:
        with monkeypatch.context() as patched:
            patched.setattr(run, "settings_as_json", lambda sampling: repr(sampling).encode())
            with pytest.raises(PendingError):
                ask(server, "abab", batch="submit")
        assert texts_of(ask(server, "ababc")) == ["<a>", "<b>", "<a>", "<b>", "<c>"]
        assert [len(each.lines) for each in server.batches] == [4, 1]


def test_what_ended_comes_though_other_batches_run(provider: Provider, tmp_path: Path) -> None:
    with serving(echo, looks=99) as server:
        with pytest.raises(PendingError):
            asked(backend(server, tmp_path / "b", provider, batch="submit"), "a")
        heard: list[int] = []
        again = backend(server, tmp_path / "b", provider, batch="submit")
        server.batches[0].looks = 99

        def ask() -> None:
            for index, _ in again.answer([(Span("a"),), (Span("b"),)], Sampling()):
                heard.append(index)

        with pytest.raises(PendingError, match="1 requests"):
            ask()
        assert heard == [0]


@pytest.mark.parametrize(
    ("refuse", "behind"), [("hang up", 0), ("hang up late", 0), ("hang up late", 5 * 3600)]
)
def test_a_batch_whose_reply_is_lost_is_sent_once(refuse: str, behind: int, ask: Ask) -> None:
    """However far the provider's clock is behind ours."""
    with serving(echo, looks=1, refuse=refuse, clock=lambda: time.time() - behind) as server:
        assert texts_of(ask(server, "ab")) == ["<a>", "<b>"]
        assert len(server.batches) == 1


def test_a_batch_of_others_is_not_taken(provider: Provider, ask: Ask, tmp_path: Path) -> None:
    with serving(echo, looks=1) as server:
        asked(backend(server, tmp_path / "others", provider), "xy")
        server.refuse = "hang up"
        assert texts_of(ask(server, "ab")) == ["<a>", "<b>"]
        assert len(server.batches) == 2


@pytest.mark.parametrize("how", ["500", "expired"])
def test_only_requests_that_failed_in_passing_are_sent_again(how: str, ask: Ask) -> None:
    def answer(body: Json) -> Outcome:
        if question(body) in "ac" and len(server.batches) <= 2:  # as many as may be tried again
            return Refused(500, "no") if how == "500" else "expired"
        return echo(body)

    with serving(answer) as server:
        assert texts_of(ask(server, "abc")) == ["<a>", "<b>", "<c>"]
        assert [len(batch.lines) for batch in server.batches] == [3, 2, 2]


def test_a_request_that_is_refused_is_its_rows_error(ask: Ask) -> None:
    def answer(body: Json) -> Outcome:
        return Refused(400, "prompt is too long") if question(body) == "b" else echo(body)

    with serving(answer) as server:
        a, b = ask(server, "ab")
        assert (a.text, b.text) == ("<a>", None)
        assert b.error == "The server answered 400: prompt is too long."
        assert server.creations == 1


def test_requests_without_a_result_are_errors_until_the_next_run(ask: Ask) -> None:
    def answer(body: Json) -> Outcome:
        return "canceled" if question(body) == "b" and server.creations == 1 else echo(body)

    with serving(answer) as server:
        a, b = ask(server, "ab")
        assert a.text == "<a>"
        assert b.error is not None
        assert texts_of(ask(server, "ab")) == ["<a>", "<b>"]
        assert [len(batch.lines) for batch in server.batches] == [2, 1]


@pytest.mark.parametrize("spoilt", ["<html>", "cut"])
def test_garbled_results_are_loaded_again(spoilt: str, ask: Ask) -> None:
    def once(text: str) -> str:
        server.spoil = None
        return text[: len(text) // 2] if spoilt == "cut" else spoilt

    with serving(echo, spoil=once) as server:
        assert texts_of(ask(server, "abc")) == ["<a>", "<b>", "<c>"]
        assert server.creations == 1


def test_an_unreadable_answer_is_an_error_and_not_paid_again(ask: Ask) -> None:
    def garbled(text: str) -> str:
        first, *others = text.splitlines(keepends=True)
        return "".join([first[:20] + "\n", *others])

    with serving(echo, spoil=garbled) as server:
        for _ in range(2):
            first, *others = ask(server, "abc")
            assert "its results could not be read" in str(first.error)
            assert texts_of(others) == ["<b>", "<c>"]
        server.spoil = None
        assert texts_of(ask(server, "abc")) == ["<a>", "<b>", "<c>"]
        assert server.creations == 1


def test_a_limit_of_requests_is_waited_for(ask: Ask) -> None:
    with serving(echo, refuse=Refused(429, "too many requests")) as server:
        assert texts_of(ask(server, "ab")) == ["<a>", "<b>"]
        assert (server.creations, len(server.batches)) == (2, 1)


def test_a_setting_that_is_refused_is_left_out_of_later_batches(ask_openai: Ask) -> None:
    def answer(body: Json) -> Outcome:
        if "max_tokens" in body:
            words = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return Refused(400, words)
        return echo(body)

    with serving(answer) as server:
        assert texts_of(ask_openai(server, "abc")) == ["<a>", "<b>", "<c>"]
        assert server.creations == 2
        ask_openai(server, "d")
        assert server.creations == 3


def test_a_batch_that_is_refused_ends_with_the_reason(ask: Ask) -> None:
    with serving(echo, refuse=Refused(400, "too many batches")) as server:
        with pytest.raises(ModelError, match=r"does not take the batch.* 400: too many batches"):
            ask(server, "a")
        assert texts_of(ask(server, "a")) == ["<a>"]


def test_a_batch_that_openai_refuses_later_ends_with_the_reason(ask_openai: Ask) -> None:
    with serving(echo, problem="Enqueued token limit reached.") as server:
        with pytest.raises(ModelError, match=r"OpenAI refused the batch\. Enqueued token limit"):
            ask_openai(server, "a")
        server.problem = None
        assert texts_of(ask_openai(server, "a")) == ["<a>"]
        assert server.creations == 2


def test_equal_prompts_are_drawn_one_by_one_and_anew(provider: Provider, tmp_path: Path) -> None:
    numbers = count()
    with serving(lambda body: replied(body, str(next(numbers)))) as server:
        of = backend(server, tmp_path / "b", provider)
        drawn = [*asked(of, "aa", temperature=1.0), *asked(of, "aa", temperature=1.0)]
        assert len(set(texts_of(drawn))) == 4
        assert len(set(server.submitted)) == 2
        assert server.creations == 2


def test_a_batch_stays_within_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(server: ProviderServer, client: ProviderClient) -> OpenAIBatches:
        del server
        return OpenAIBatches(client, 4, 2_000)

    monkeypatch.setattr("relquery.backends.provider.batch_backend.batch_api", small)
    texts = ["x" * 900, "y" * 900, "z" * 900, *map(str, range(6))]
    with serving(echo) as server:
        answers = asked(backend(server, tmp_path / "b", OPENAI), texts)
        assert texts_of(answers) == [f"<{text}>" for text in texts]
        assert all(len(batch.lines) <= 4 for batch in server.batches)
        assert all(len(json.dumps(batch.lines)) < 2_500 for batch in server.batches)
        assert 3 <= len(server.batches) <= 6


def test_a_budget_holds_for_the_batch_as_a_whole(tmp_path: Path) -> None:
    with serving(echo) as server:
        of = backend(server, tmp_path / "b", OPENAI, budget="3 calls")
        with pytest.raises(BudgetError, match="no room for a batch of 4 requests"):
            asked(of, "abcd")
        assert server.creations == 0
        assert texts_of(asked(of, "abc")) == ["<a>", "<b>", "<c>"]


def test_a_batch_counts_once_in_a_budget_of_a_month_whoever_fetches_it(
    provider: Provider, tmp_path: Path
) -> None:
    path, spent = tmp_path / "b", Spending(tmp_path / "s", Amount.of("9000 tokens/month"))
    given = {"budget": spent.budget, "budget_file": spent.path}
    with serving(echo, looks=9, refuse=Refused(400, "no")) as server:
        with pytest.raises(ModelError):
            asked(backend(server, path, provider, **given), "ab")
        assert spent.spent == 0.0, "what was not taken is given back"
        with pytest.raises(PendingError):
            asked(backend(server, path, provider, batch="submit", **given), "ab")
        assert spent.spent > 400, "what both may take"
        with ThreadPoolExecutor(2) as threads:
            both = [backend(server, path, provider, **given) for _ in range(2)]
            for answers in threads.map(lambda one: asked(one, "ab"), both):
                assert texts_of(answers) == ["<a>", "<b>"]
        assert spent.spent == 2 * 12
        asked(backend(server, path, provider, **given), "ab")
        assert spent.spent == 2 * 12


def test_batches_need_a_file_and_a_provider_that_has_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch is given without a ledger"):
        ProviderConfig(batch=True)
    with pytest.raises(ConfigError, match="openai: and anthropic:"):
        BatchBackend("g", ProviderConfig(batch=True, batches=tmp_path / "b", api_key="k"), GEMINI)
    with pytest.raises(ConfigError, match="cannot be written down"):
        BatchStore.open(tmp_path / "nowhere" / "b")


def test_two_that_ask_the_same_submit_it_once(ask: Ask) -> None:
    with serving(echo, looks=4) as server, ThreadPoolExecutor(2) as threads:
        both = threads.map(lambda texts: texts_of(ask(server, texts)), ("abc", "cbd"))
        assert list(both) == [[f"<{text}>" for text in texts] for texts in ("abc", "cbd")]
        assert len(set(server.submitted)) == len(server.submitted) == 4


PROGRAM = """
import sys
from pathlib import Path
from relquery.backends.provider import batch_run as run
from relquery.backends.provider.batch_apis import OpenAIBatches
from tests.backends.provider.test_batches import ANTHROPIC, OPENAI, asked, backend
run._POLLS, run._GRACE_SECONDS = (0.02,), 0.2
class Server: root, url = sys.argv[1], sys.argv[1] + "/v1"
provider = OPENAI if sys.argv[3] == "openai" else ANTHROPIC
print("begins", flush=True)
print([each.text for each in asked(backend(Server, Path(sys.argv[2]), provider), list("abcdef"))])
"""


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_killed_processes_find_their_batch(provider: Provider, seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    path = tmp_path / "b"
    with serving(echo, looks=40) as server:
        command = [sys.executable, "-c", PROGRAM, server.root, str(path), provider.name]
        for _ in range(3):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
            try:
                process.wait(random.uniform(0.0, 0.5))
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert done.stdout.splitlines()[1] == str([f"<{text}>" for text in "abcdef"])
        assert len(server.batches) == 1


def test_a_cancelled_batch_is_an_error_of_its_rows(tmp_path: Path) -> None:
    with serving(echo, looks=99) as server:
        of = backend(server, tmp_path / "b", OPENAI, batch="submit")
        with pytest.raises(PendingError):
            asked(of, "a")
        server.cancel("batch_1")
        (answer,) = asked(of, "a")
        assert answer.error == "The batch was cancelled."
