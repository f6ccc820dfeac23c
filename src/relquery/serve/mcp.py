"""The tools: the tables, what a statement would ask, and its rows.

A tool asks a route of a server, with the limits and rights that its caller has there.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import httpx
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Receive, Scope, Send

MOST_CALLS, MOST_ROWS = 1_000, 100
"""Of run_sql, where its caller does not say."""
_INSTRUCTIONS = (
    "Tables that can be read with DuckDB's SQL. AI_FILTER('question', column), "
    "AI_CLASSIFY(column, ['label', ...]) and AI_COMPLETE('prompt', column) ask a language model "
    "about each row, which takes time: filter rows without them first, and look with explain_sql "
    "at what a statement would ask."
)
_QUERY = {"type": "string", "description": "One statement that reads: SELECT, WITH, DESCRIBE, ..."}
_ROUTES = {
    "list_tables": ("GET", "/v1/tables"),
    "explain_sql": ("POST", "/v1/sql/explain"),
    "run_sql": ("POST", "/v1/sql"),
}
Ask = Callable[[ServerRequestContext[Any], str, str, Any], Awaitable[tuple[int, str]]]
"""Asks a route for the caller of a tool: method, path and body, for a status and a body."""


def _tool(name: str, description: str, required: list[str], **fields: Any) -> types.Tool:
    schema = {
        "type": "object",
        "properties": fields,
        "required": required,
        "additionalProperties": False,
    }
    hints = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    return types.Tool(name=name, description=description, input_schema=schema, annotations=hints)


TOOLS = [
    _tool("list_tables", "The tables with their columns, types and numbers of rows.", []),
    _tool(
        "explain_sql",
        "What a statement would ask the model, and what that takes at most: calls, tokens, "
        "seconds. Asks nothing.",
        ["query"],
        query=_QUERY,
    ),
    _tool(
        "run_sql",
        "Run a statement and get its first rows as JSON. It is refused if it might ask the model "
        "more often than max_calls.",
        ["query"],
        query=_QUERY,
        max_calls={"type": "integer", "minimum": 0, "default": MOST_CALLS},
        rows={"type": "integer", "minimum": 1, "maximum": 10_000, "default": MOST_ROWS},
    ),
]


def tools_over(ask: Ask) -> Server[Any]:
    """A server of the tools."""

    async def list_tools(
        context: ServerRequestContext[Any], page: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=TOOLS)

    async def call_tool(
        context: ServerRequestContext[Any], call: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if call.name not in _ROUTES:
            known = ", ".join(_ROUTES)
            return _told(f"The tool '{call.name}' does not exist. Tools: {known}.", is_error=True)
        method, path = _ROUTES[call.name]
        body = None if method == "GET" else dict(call.arguments or {})
        if body is not None and call.name == "run_sql":
            body = {"max_calls": MOST_CALLS, "rows": MOST_ROWS} | body
        elif body is not None:
            body["cost"] = True
        try:
            status, answer = await ask(context, method, path, body)
        except httpx.TransportError as error:
            return _told(f"The server cannot be reached: {error}", is_error=True)
        if status == 200:
            return _told(json.loads(answer)["text"] if "cost" in (body or ()) else answer)
        return _told(json.loads(answer)["error"]["message"], is_error=True)

    return Server(
        "relquery",
        version=version("relquery"),
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, with tools over the routes of its server."""
    manager = StreamableHTTPSessionManager(
        tools_over(_ask_inside),
        json_response=True,
        stateless=True,
        # Hosts and pages are checked for all routes by the middleware.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)


async def _ask_inside(
    context: ServerRequestContext[Any], method: str, path: str, body: Any
) -> tuple[int, str]:
    assert context.request is not None, "the tools are called over HTTP"
    state, content = context.request.state, json.dumps(body).encode()
    reply = await state.server.call(state.scope, method, path, content, state.request_id)
    return reply[0], reply[1].decode()


async def over_stdio(url: str, headers: dict[str, str]) -> None:
    """Serve the tools of a server elsewhere on standard input and output."""
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=None) as client:

        async def ask(_: object, method: str, path: str, body: Any) -> tuple[int, str]:
            reply = await client.request(method, path, json=body)
            return reply.status_code, reply.text

        server = tools_over(ask)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())


def _told(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], is_error=is_error
    )
