"""What clients send by mistake or in malice is refused in the API's own form, and costs nothing."""

from __future__ import annotations

import gzip
import json
import re
import socket
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import httpx
import pytest

from tests.cases import cases
from tests.serve.conftest import Running, inside

MOST = 1 << 20
HALF = "\ud800"  # half a character
CHAT: dict[str, Any] = {"model": "demo", "messages": [{"role": "user", "content": "Is tea good?"}]}
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "demo", "prompt": "Tea is"},
    "/v1/responses": {"model": "demo", "input": "Is tea good?"},
    "/v1/messages": CHAT | {"max_tokens": 3},
    "/v1/messages/count_tokens": CHAT,
    "/v1/score": {"model": "demo", "prompts": ["Is tea good?"], "labels": ["yes", "no"]},
    "/v1/sql": {"query": "SELECT LLM('Good?', name) FROM (VALUES ('Tea')) AS t(name)"},
    "/v1/prompts": {"markup": "<schema name='s'/>", "prompt": "<prompt schema='s'/>"},
    "/tokenize": {"prompt": "Is tea good?"},
}


@pytest.fixture(scope="module")
def hostile() -> Iterator[Running]:
    model = "simulated:step=0.0005,length=4,context=4096"
    with inside(model, names=("demo",), tables={"movies": "demo:movies"}, max_body=MOST) as found:
        yield found


def post(server: Running, path: str, body: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    return httpx.post(f"{server.url}{path}", content=content, headers=headers, timeout=60)


def raw(server: Running, *parts: bytes) -> bytes:
    """What a connection is answered that sends these bytes."""
    with socket.create_connection(("127.0.0.1", server.port), 20) as client:
        for part in parts:
            client.sendall(part)
        found = b""
        while more := client.recv(65_536):
            found += more
            if b"connection: close" not in found.lower() and found.endswith(b"}"):
                break
    return found


def message_of(path: str, answer: httpx.Response) -> str:
    """The message of an error, which has the form of the API that the path belongs to."""
    body = answer.json()
    assert ("request_id" in body) == path.startswith("/v1/messages")
    message: str = body["error"]["message"]
    return message


def test_half_a_character_in_a_name_is_told_back_in_an_error(hostile: Running) -> None:
    for path, body in ASKED.items():
        answer = post(hostile, path, body | {"model": HALF})
        assert answer.status_code == 404
        assert HALF in message_of(path, answer)


@pytest.mark.parametrize("stream", [False, True])
def test_half_a_character_in_metadata_and_prompts(hostile: Running, stream: bool) -> None:
    body = ASKED["/v1/responses"] | {"metadata": {"of": HALF}, "stream": stream}
    answer = post(hostile, "/v1/responses", body)
    assert (answer.status_code, "\\ud800" in answer.text) == (200, True)
    body = ASKED["/v1/messages"] | {"system": HALF, "stream": stream}
    assert post(hostile, "/v1/messages", body).status_code == 400


def test_a_number_that_json_does_not_have_is_refused(hostile: Running) -> None:
    for path, word in product(ASKED, (b"NaN", b"Infinity", b"-Infinity")):
        body = json.dumps(ASKED[path] | {"temperature": "HERE"}).encode().replace(b'"HERE"', word)
        answer = post(hostile, path, body)
        assert answer.status_code == 400
        assert "not JSON" in message_of(path, answer)
        assert word.decode() in message_of(path, answer)
    texts = CHAT | {"messages": [{"role": "user", "content": "NaN, Infinity"}]}
    assert post(hostile, "/v1/chat/completions", texts).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_number_that_is_too_large_is_the_clients_error(hostile: Running, stream: bool) -> None:
    schema = {"type": "json_schema", "schema": {"const": "@"}}
    for path, form in (
        ("/v1/chat/completions", {"response_format": schema | {"json_schema": schema}}),
        ("/v1/responses", {"text": {"format": schema}}),
        ("/v1/messages", {"output_config": {"format": schema}}),
    ):
        body = json.dumps(ASKED[path] | form | {"stream": stream})
        assert post(hostile, path, body.replace('"@"', "1e999").encode()).status_code == 400


@pytest.mark.parametrize("value", [float("nan"), HALF])
def test_a_schema_that_no_json_has_is_the_clients_error(hostile: Running, value: object) -> None:
    answer = post(hostile, "/v1/sql", ASKED["/v1/sql"] | {"schema": {"const": value}})
    assert (answer.status_code, "not JSON" in answer.text) == (400, True)


def test_values_have_the_type_that_the_document_says(hostile: Running) -> None:
    for given, status in cases(__file__, "typed"):
        answer = post(hostile, "/v1/chat/completions", CHAT | given)
        assert answer.status_code == status, given


def test_a_path_tells_all_methods_that_it_takes_and_what_was_meant(hostile: Running) -> None:
    answer = httpx.options(f"{hostile.url}/v1/files")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert httpx.head(f"{hostile.url}/v1/messages").headers["allow"] == "POST"
    for path, meant in (
        ("/v1/v1/messages", "Did you mean /v1/messages?"),
        ("/chat/completions", "Did you mean /v1/chat/completions?"),
        ("/v2/messages", ""),
    ):
        answer = post(hostile, path, {})
        said = answer.json()["error"]["message"]
        assert (answer.status_code, meant in said) == (404, True)
        assert ("Did you mean" in said) == bool(meant)


def test_every_get_has_a_head(hostile: Running) -> None:
    document = httpx.get(f"{hostile.url}/openapi.json").json()
    paths = [path for path, found in document["paths"].items() if "get" in found]
    for path in (*paths, "/", "/openapi.json"):
        got = httpx.get(hostile.url + path)
        head = httpx.head(hostile.url + path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        assert head.headers["content-type"] == got.headers["content-type"]
        assert "content-length" in head.headers


def test_a_relquery_in_a_header_is_that_of_its_request_alone(hostile: Running) -> None:
    headers = {"relquery": "id=late; deadline=0.000000001"}
    assert httpx.get(f"{hostile.url}/v1/tables", headers=headers).status_code == 200
    assert post(hostile, "/v1/sql", ASKED["/v1/sql"]).status_code == 200


def test_a_stop_of_too_many_texts_is_told_as_that(hostile: Running) -> None:
    answer = post(hostile, "/v1/chat/completions", CHAT | {"stop": ["a"] * 17})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "stop")
    assert "at most 16" in error["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages"])
def test_different_relqueries_in_one_request_are_refused(hostile: Running, path: str) -> None:
    for headers, body, status in cases(__file__, "declared"):
        answer = httpx.post(
            f"{hostile.url}{path}",
            headers=[("relquery", each) for each in headers],
            json=ASKED[path] | ({} if body is None else {"relquery": body}),
        )
        assert answer.status_code == status, (headers, body)
        if status == 400:
            said = message_of(path, answer)
            assert "header 'relquery'" in said
            assert "field 'relquery'" in said


@pytest.mark.parametrize("name", ["Host: localhost", "Origin: http://localhost"])
def test_a_header_that_says_who_is_called_is_sent_once(hostile: Running, name: str) -> None:
    one = f"{name}\r\n".encode() * 2 + b"Host: localhost\r\n" * name.startswith("Origin")
    found = raw(hostile, b"GET /health HTTP/1.1\r\n" + one + b"\r\n")
    assert found.startswith(b"HTTP/1.1 400 ")
    assert b"2 times" in found


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages"])
def test_a_prompt_that_is_too_long_is_told_the_context(hostile: Running, path: str) -> None:
    for text in ("word " * 6_000, "w" * 900_000):
        messages = {"messages": [{"role": "user", "content": text}]}
        more = {"prompt": text} if "prompt" in ASKED[path] else messages
        said = message_of(path, post(hostile, path, ASKED[path] | more))
        assert re.match(r"The prompt has [\d,]+ (tokens|characters)", said)
        assert "the model's context" in said
        assert said.endswith("Send a shorter prompt.")
        assert "SQL" not in said


def test_a_body_or_a_head_without_end_is_refused(hostile: Running) -> None:
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert b" 413 " in raw(hostile, head, *[chunk] * 17)
    found = raw(hostile, b"GET /health HTTP/1.1\r\nX: ", b"y" * 70_000)
    assert found.startswith(b"HTTP/1.1 431 ")
    assert "headers" in json.loads(found.partition(b"\r\n\r\n")[2])["error"]["message"]


def test_a_request_that_two_programs_could_read_differently_is_refused(hostile: Running) -> None:
    for head in (
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 4\r\nContent-Length: 5\r\n",
        b"Content-Length: -1\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
    ):
        whole = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n0\r\n\r\n"
        found = raw(hostile, whole)
        assert found.startswith(b"HTTP/1.1 400 ")
        error = json.loads(found.partition(b"\r\n\r\n")[2])["error"]
        assert error["type"] == "invalid_request_error"


def test_clients_that_leave_at_any_point_leave_nothing_behind(hostile: Running) -> None:
    body = json.dumps(CHAT | {"max_tokens": 100, "stream": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    whole = head % len(body) + body
    for at in [*range(0, len(whole), 7), len(whole)]:
        with socket.create_connection(("127.0.0.1", hostile.port), 20) as client:
            client.sendall(whole[:at])
    _until_idle(hostile)
    assert [line for line in hostile.lines if "Traceback" in line] == []


def _until_idle(server: Running) -> None:
    for _ in range(100):
        state = httpx.get(f"{server.url}/console/state").json()
        if state["requests"]["open"] == 0 and state["cache"]["held"] == 0:
            return
    raise AssertionError(state)


def statuses(server: Running, path: str) -> set[str]:
    page = httpx.get(f"{server.url}/metrics").text
    return set(re.findall(rf'http_requests_total{{path="{path}",status="(\d+)"', page))


@pytest.mark.parametrize("stream", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_client_that_leaves_is_no_error_of_the_server(stream: bool) -> None:
    paths = {
        **ASKED,
        "/v1/query/execute": {"g": {"model": "demo", "input": {"user": "Is tea good?"}}},
    }
    with inside("simulated:step=0.2,length=4", names=("demo",)) as server:
        for path, body in paths.items():
            asked = body | {"stream": True} if stream and path != "/v1/query/execute" else body
            content = json.dumps(asked).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            for part in (content[:1], content):
                with socket.create_connection(("127.0.0.1", server.port), 20) as client:
                    client.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + part)
        until = time.monotonic() + 20
        while not all(statuses(server, path) for path in paths):
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(1)
        found = {path: statuses(server, path) for path in paths}
    assert all(seen <= {"499", "200", "400"} and "499" in seen for seen in found.values()), found


def test_a_body_that_is_not_json_or_not_sent_as_json_is_told_as_that(hostile: Running) -> None:
    url = f"{hostile.url}/v1/chat/completions"
    broken = post(hostile, "/v1/chat/completions", b'{"model": "demo", "messages": [{]}')
    assert "The body is not JSON" in broken.json()["error"]["message"]
    packed = gzip.compress(json.dumps(CHAT).encode())
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = httpx.post(url, content=packed, headers=headers)
    assert answer.status_code == 415
    assert "Send it as it is, without the header" in answer.json()["error"]["message"]
    plain = httpx.post(url, content=json.dumps(CHAT), headers={"content-type": "text/plain"})
    for answer in (plain, httpx.post(url, data={"model": "demo"})):
        assert answer.status_code == 400
        assert "application/json" in answer.json()["error"]["message"]
