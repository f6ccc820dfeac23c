"""Agents get the tools of a server with the rights and limits of their keys."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("mcp", reason="needs relquery[mcp]")

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from relquery.serve.auth import Key, hash_of, write_keys
from tests.serve.conftest import Running, inside

KEYS = [
    Key("ann", "ann", hash_of("rq-ann"), "rq-ann"),
    Key("bob", "bob", hash_of("rq-bob"), "rq-bob"),
    Key("rare", "rare", hash_of("rq-rare"), "rq-rare", requests_per_minute=3),
]
CALLS = "SELECT movietitle, AI_FILTER('Is {movietitle} a comedy?') FROM movies WHERE year = 1996"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    write_keys(path, KEYS)
    with inside(keys=path, tables={"movies": "demo:movies"}) as found:
        yield found


def using(server: Running, key: str, use: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
    """What a function gives that has a client of the tools."""

    async def run() -> Any:
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
            async with Client(transport) as client:
                return await use(client)

    return asyncio.run(run())


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def call(server: Running, tool: str, key: str = "rq-ann", **arguments: Any) -> tuple[bool, str]:
    """Whether a call failed, and what it was told."""

    async def use(client: Client) -> tuple[bool, str]:
        found = await client.call_tool(tool, arguments)
        return bool(found.is_error), text_of(found)

    found: tuple[bool, str] = using(server, key, use)
    return found


def test_the_tools_read_and_say_so(guarded: Running) -> None:
    tools = using(guarded, "rq-ann", lambda client: client.list_tools()).tools
    assert {each.name for each in tools} == {"list_tables", "explain_sql", "run_sql"}
    assert all(each.annotations.read_only_hint for each in tools)


def test_tables_are_listed_explained_and_read(guarded: Running) -> None:
    failed, text = call(guarded, "list_tables")
    assert (failed, json.loads(text)["data"][0]["name"]) == (False, "movies")
    failed, text = call(guarded, "explain_sql", query=CALLS)
    assert (failed, "1 LLM expression" in text, "output tokens" in text) == (False, True, True), (
        text
    )
    failed, text = call(guarded, "run_sql", query=CALLS, rows=2)
    found = json.loads(text)
    assert (failed, len(found["rows"]), found["report"]["calls"]) == (False, 2, 3)
    assert found["total_rows"] > 2


def test_a_statement_beyond_its_calls_asks_nothing(guarded: Running) -> None:
    query = CALLS.replace("comedy", "western")
    failed, text = call(guarded, "run_sql", query=query, max_calls=2)
    assert (failed, "up to 3 calls" in text, "at most 2" in text) == (True, True, True)
    failed, text = call(guarded, "run_sql", query=query, max_calls=3)
    assert (failed, json.loads(text)["report"]["calls"]) == (False, 3)  # none was known
    failed, _ = call(guarded, "run_sql", query=query, max_calls=0)  # all are
    assert not failed


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("run_sql", {"query": "DROP TABLE movies"}, "Only statements that read"),
        ("run_sql", {"query": "FROM movie"}, "Did you mean"),
        ("run_sql", {"query": "SELECT 1", "limit": 3}, "limit"),
        ("explain_sql", {}, "query"),
        ("drop", {}, "does not exist"),
    ],
)
def test_what_is_wrong_is_told(
    guarded: Running, tool: str, arguments: dict[str, Any], said: str
) -> None:
    failed, text = call(guarded, tool, **arguments)
    assert (failed, said in text) == (True, True), text


def test_keys_and_their_limits_hold(guarded: Running) -> None:
    def status(key: str) -> int:
        headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}
        return httpx.post(f"{guarded.url}/mcp", headers=headers, json={}).status_code

    assert status("rq-wrong") == 401
    assert [status("rq-rare") for _ in range(4)][-1] == 429


def test_an_agent_starts_the_tools_as_a_command(guarded: Running) -> None:
    async def run() -> str:
        arguments = ["-m", "relquery", "mcp", guarded.url, "--key", "rq-ann"]
        server = StdioServerParameters(command=sys.executable, args=arguments, cwd=Path.cwd())
        async with Client(server) as client:
            found = await client.call_tool("run_sql", {"query": "SELECT 6 * 7 AS a"})
            return text_of(found)

    assert json.loads(asyncio.run(run()))["rows"] == [[42]]
