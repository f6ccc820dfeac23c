"""`relquery replay` against a real HTTP server on this machine."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.standin.errors import Refused
from benchmarks.standin.http import Json
from benchmarks.standin.server import Reply, Silence, Stream, question, serving
from benchmarks.standin.wires.openai_chat import chunk, streamed
from relquery.traces.trace import TracedQuery, save
from tests.cases import cases
from tests.cli.conftest import Run

# In seconds.
LATEST_ARRIVAL = 0.2
PATIENCE = 5.0


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def run(relquery: Run, day: Path) -> Run:
    return partial(relquery, "replay", "-t", day, "-m", "some")


@pytest.fixture
def day(tmp_path: Path) -> Path:
    """Three relQueries: a of 2 rows, b of 1 row by a tenant, c of 3 rows."""
    middle = query("b", LATEST_ARRIVAL / 2, 1, 10, tenant="ann")
    queries = [query("a", 0.0, 2, 5), middle, query("c", LATEST_ARRIVAL, 3, 50)]
    save(queries, tmp_path / "day.jsonl")
    return tmp_path / "day.jsonl"


def query(table: str, arrival: float, rows: int, limit: int, tenant: str = "") -> TracedQuery:
    texts = tuple(f"{table}{row}" for row in range(rows))
    return TracedQuery(arrival, "filter", table, "Is it? ", texts, limit, (2,) * rows, tenant)


def echo(body: Json) -> Stream:
    return Stream(streamed(question(body).removeprefix("Is it? "), "!", cached_tokens=5))


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_every_prompt_is_sent_once_as_the_trace_says_and_not_before_it_arrives(run: Run) -> None:
    begin = time.perf_counter()
    came: dict[str, float] = {}

    def answer(body: Json) -> Stream:
        came[question(body)] = time.perf_counter() - begin
        return echo(body)

    with serving(answer) as server:
        run("-s", server.url)
    assert Counter(map(question, server.asked)) == Counter(
        f"Is it? {row}" for row in ("a0", "a1", "b0", "c0", "c1", "c2")
    )
    assert came["Is it? b0"] >= LATEST_ARRIVAL / 2
    assert all(came[f"Is it? c{row}"] >= LATEST_ARRIVAL for row in range(3))
    for body in server.asked:
        table = question(body)[-2]
        assert body["max_tokens"] == {"a": 5, "b": 10, "c": 50}[table]
        assert body["temperature"] == 0
        assert body.get("user") == ("ann" if table == "b" else None)


def test_all_prompts_are_sent_without_waiting_for_any_answer(run: Run) -> None:
    all_there = threading.Barrier(6)

    def answer(body: Json) -> Stream:
        all_there.wait(PATIENCE)
        return echo(body)

    with serving(answer) as server:
        run("-s", server.url)
        assert server.peak == 6


def test_latencies_come_as_a_table_a_timeline_and_json(run: Run, day: Path) -> None:
    plot = day.with_suffix(".png")
    with serving(echo) as server:
        table, _ = run("-s", server.url, "--plot", plot)
        assert f"3 relQueries of 6 requests on {server.url}" in table
        assert all(word in table for word in ("some", "p99", "waiting", "core", "tail", "50%"))
        assert plot.read_bytes().startswith(b"\x89PNG")
        figures = json.loads(run("-s", server.url, "--json", "--faster", 4)[0])["some"]
    parts = [figures[part]["mean"] for part in ("waiting", "core", "tail")]
    assert all(part >= 0 for part in parts)
    assert figures["total"]["mean"] == pytest.approx(sum(parts))
    assert (figures["relqueries"], figures["requests"], figures["failed"]) == (3, 6, 0)
    assert (figures["hit_rate"], figures["held"]) == (0.5, 0)
    assert figures["tokens_per_second"] > 0
    assert figures["lag"] >= 0


def test_what_the_server_does_not_tell_is_left_open(run: Run) -> None:
    with serving(lambda body: Stream([chunk(content="x"), chunk("stop")])) as server:
        figures = json.loads(run("-s", server.url, "--json")[0])["some"]
        assert (figures["hit_rate"], figures["tokens_per_second"]) == (None, None)
        assert "?" in run("-s", server.url)[0]


def test_answers_are_written_in_order_of_the_trace(run: Run, tmp_path: Path) -> None:
    last_came = threading.Event()

    def answer(body: Json) -> Stream:
        if question(body).endswith("a0"):
            last_came.wait(PATIENCE)
        elif question(body).endswith("c2"):
            last_came.set()
        return echo(body)

    with serving(answer) as server:
        run("-s", server.url, "-o", tmp_path / "answers.jsonl")
    written = lines(tmp_path / "answers.jsonl")
    assert [line["answer"] for line in written] == ["a0!", "a1!", "b0!", "c0!", "c1!", "c2!"]
    places = [(line["relquery"], line["row"]) for line in written]
    assert places == [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2)]
    assert all(0 <= line["sent"] <= line["heard"] <= line["ended"] for line in written)
    assert all(line["cached_tokens"] == 5 and line["error"] is None for line in written)


def test_failed_requests_are_counted_and_the_others_answered(run: Run, tmp_path: Path) -> None:
    def answer(body: Json) -> Reply | Stream | Silence:
        if question(body).endswith("a1"):
            return Refused(500, "out of memory")
        if question(body).endswith("c0"):
            return Stream([chunk(content="so"), Silence.HANG_UP])
        return echo(body)

    output = tmp_path / "answers.jsonl"
    with serving(answer) as server:
        shown, told = run("-s", server.url, "-o", output, code=3)
    assert "3 relQueries" in shown
    assert "2 of 6 requests failed; the first: a, filter, row 1: The server answered 500" in told
    written = lines(output)
    assert [line["answer"] for line in written] == ["a0!", None, "b0!", None, "c1!", "c2!"]
    assert "out of memory" in written[1]["error"]
    assert len(server.asked) == 6


def test_held_or_late_requests_are_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(echo) as server:
        _, told = run("-s", server.url, "--concurrency", 1)
        assert server.peak == 1
        assert "waited for --concurrency 1" in told
        monkeypatch.setattr("relquery.cli.replay._LATE", -1.0)
        assert "s late" in run("-s", server.url)[1]


def press(body: Json) -> Silence:
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    signal.pthread_kill(main_thread, signal.SIGINT)
    return Silence.UNTIL_CLIENT_LEAVES


@pytest.mark.parametrize(("at", "ended"), [("b0", ["a0!", "a1!"]), ("a0", [])])
def test_an_interrupted_replay_shows_and_writes_what_has_ended(
    run: Run, tmp_path: Path, at: str, ended: list[str]
) -> None:
    def answer(body: Json) -> Stream | Silence:  # b is sent once a has ended, as one runs at a time
        return press(body) if question(body).endswith(at) else echo(body)

    output = tmp_path / "answers.jsonl"
    with serving(answer) as server:
        given = ("--concurrency", 1, "-o", output, "-s", server.url)
        shown, told = run(*given, code=130)
    assert "Interrupted." in told
    if ended:
        assert "1 relQueries of 2 requests" in shown
        assert [line["answer"] for line in lines(output)] == ended
    else:
        assert shown == ""


def test_a_key_is_read_from_the_variable_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_THE_SERVER", "secret")
    monkeypatch.setenv("OPENAI_API_KEY", "not for this server")
    with serving(echo) as server:
        run("-s", server.url)
        assert server.keys == {"none"}
        run("-s", server.url, "--api-key-env", "KEY_OF_THE_SERVER")
        assert server.keys == {"none", "secret"}


def test_a_server_that_is_not_there_is_told_at_once(run: Run) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    shown, told = run("-s", f"http://127.0.0.1:{port}/v1", code=1)
    assert shown == ""
    assert "cannot be reached" in told
    assert "Start the server, or check its address" in told


def test_what_all_would_meet_ends_it(run: Run, tmp_path: Path) -> None:
    save([query("a", 0.0, 2, 5), query("b", 3600.0, 1, 5)], tmp_path / "long.jsonl")
    for status, message in ((401, "--api-key-env"), (404, "does not serve the model 'some'")):
        with serving(lambda body, status=status: Refused(status, "no")) as server:  # type: ignore[misc]
            command = ("-t", tmp_path / "long.jsonl", "-s", server.url)
            assert message in run(*command, code=1)[1]


def test_a_wrong_option_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    empty = (("-t", tmp_path / "empty.jsonl"), "has no requests")
    for options, message in (*cases(__file__), empty):
        given = ("-s", "http://127.0.0.1:9/v1", *options)
        assert message in run(*given, code=1)[1]
