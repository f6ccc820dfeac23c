"""The routes of files and batches."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from benchmarks.providers.standin.batches.store import Batches
from benchmarks.providers.standin.errors import Refused
from benchmarks.providers.standin.forms.asked import Json
from benchmarks.providers.standin.forms.batch import Batch, anthropic
from benchmarks.providers.standin.http import Request, Response


def route(batches: Batches, request: Request) -> Response:
    """Answer a request about files or batches. Raises Refused."""
    split = urlsplit(request.path)
    query = {name: values[0] for name, values in parse_qs(split.query).items()}
    found: Json | str
    match request.method, *split.path.strip("/").split("/")[1:]:
        case "POST", "files":
            found = batches.add_file(request.headers.get("content-type", ""), request.body)
        case "GET", "files", name:
            found = batches.file(name)[0]
        case "GET", "files", name, "content":
            found = batches.file(name)[1].decode()
        case "POST", "batches":
            found = batches.openai(batches.make(request.body))
        case "GET", "batches":
            found = _openai_list(batches, query)
        case "GET", "batches", name:
            found = batches.openai(batches.batch(name))
        case "POST", "batches", name, "cancel":
            found = batches.openai(batches.cancel(name))
        case _:
            found = _messages(batches, request, split.path, query)
    return Response(found)


def _messages(batches: Batches, request: Request, path: str, query: dict[str, str]) -> Json | str:
    url = f"http://{request.headers.get('host', '')}"
    match request.method, *path.strip("/").split("/")[1:]:
        case "POST", "messages", "batches":
            return anthropic(batches.make_messages(request.body), url)
        case "GET", "messages", "batches":
            return _anthropic_list(batches, query, url)
        case "GET", "messages", "batches", name:
            return anthropic(batches.batch(name), url)
        case "POST", "messages", "batches", name, "cancel":
            return anthropic(batches.cancel(name), url)
        case "GET", "messages", "batches", name, "results":
            return batches.results(batches.batch(name))
    raise Refused(404, f"Invalid URL ({request.method} {path})")


def _page(batches: Batches, kind: str, after: str | None, most: int) -> tuple[list[Batch], Json]:
    """(the batches after one, the newest first; what both providers say of the page)."""
    names = [name for name in reversed(batches.batches) if name.startswith(kind)]
    start = names.index(after) + 1 if after in names else 0
    found = [batches.batch(name) for name in names[start : start + most]]
    ids: list[str | None] = [batch.id for batch in found] or [None]
    more = start + most < len(names)
    return found, {"first_id": ids[0], "last_id": ids[-1], "has_more": more}


def _openai_list(batches: Batches, asked: dict[str, str]) -> Json:
    found, page = _page(batches, "batch_", asked.get("after"), int(asked.get("limit", "20")))
    return {"object": "list", "data": [batches.openai(batch) for batch in found], **page}


def _anthropic_list(batches: Batches, asked: dict[str, str], url: str) -> Json:
    found, page = _page(batches, "msgbatch_", asked.get("after_id"), int(asked.get("limit", "20")))
    return {"data": [anthropic(batch, url) for batch in found], **page}
