"""/v1/schemas and /v1/prompts"""

from __future__ import annotations

from dataclasses import asdict
from typing import NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from relquery.backends.base import Backend
from relquery.markup.read.schema import Schema
from relquery.markup.schemas import Used
from relquery.prompt import Prompt
from relquery.serve.answering import whole
from relquery.serve.asked import Caller
from relquery.serve.documented import errors
from relquery.serve.ours.lines import Json
from relquery.serve.ours.markup.bodies import (
    Deleted,
    PromptAnswer,
    PromptBody,
    SchemaBody,
    SchemaList,
    SchemaShown,
)
from relquery.serve.ours.markup.registry import Owned, Registry, not_there
from relquery.serve.ours.runs import Run, start
from relquery.serve.server import Asked
from relquery.serve.wire.openai.usage import finish_of, usage_of

router = APIRouter(tags=["relquery"])


@router.post("/v1/schemas", response_model=SchemaShown, responses=errors(409, 504))
async def add_schema(body: SchemaBody, request: Request) -> Response:
    """Let your prompts name a schema, in place of yours of the same name."""
    caller = Caller(request)

    def add(run: Run[Schema]) -> Schema:
        del run
        schema = Schema.parse(body.markup)
        caller.server.kept(Registry).add(_owned(caller), schema, prepare=body.prepare)
        return schema

    schema = await start(caller, add).whole(request)
    return Json(_shown(schema, shared=False))


@router.get("/v1/schemas", response_model=SchemaList, responses=errors())
async def list_schemas(request: Request) -> Response:
    """The schemas that your prompts may name."""
    caller = Caller(request)
    known = dict(_owned(caller).schemas.known)
    registry = caller.server.kept(Registry)
    data = [_shown(each, shared=registry.is_shared(name)) for name, each in known.items()]
    return Json({"object": "list", "data": data})


@router.get("/v1/schemas/{name:path}", response_model=SchemaShown, responses=errors(404))
async def get_schema(name: str, request: Request) -> Response:
    """A schema and its markup."""
    caller = Caller(request)
    owned = _owned(caller)
    schema = owned.schemas.known.get(name)
    if schema is None:
        raise not_there(name, owned)
    shared = caller.server.kept(Registry).is_shared(name)
    return Json({**_shown(schema, shared=shared), "markup": schema.source})


@router.delete("/v1/schemas/{name:path}", response_model=Deleted, responses=errors(403, 404, 504))
async def delete_schema(name: str, request: Request) -> Response:
    """Forget a schema that you have posted."""
    caller = Caller(request)

    def remove(run: Run[None]) -> None:
        del run
        caller.server.kept(Registry).remove(_owned(caller), name)

    await start(caller, remove).whole(request)
    return Json({"name": name, "object": "schema", "deleted": True})


class _Lowered(NamedTuple):
    prompt: Prompt
    used: list[Used]


@router.post("/v1/prompts", response_model=PromptAnswer, responses=errors(404, 422, 504))
async def answer_prompt(body: PromptBody, request: Request) -> Response:
    """Answer a prompt over a schema, with the states of the modules that it imports."""
    caller = Caller(request)
    sampling, adapter = body.sampling, caller.adapter(body.model)

    def lower(run: Run[_Lowered]) -> _Lowered:
        del run
        owned = _owned(caller)
        with owned.turn:
            lowered = owned.schemas.lower(body.prompt, independent=body.independent)
            asking = caller.server.backend(caller.asker, adapter=adapter)
            return _Lowered(lowered.prompt, owned.schemas.used(lowered, asking))

    lowered = await start(caller, lower).whole(request)
    asked = Asked([lowered.prompt], sampling, adapter)
    flow = caller.start([asked], declared=body.relquery)
    answers = await whole(request, flow)
    (answer,) = answers
    return Json(
        {
            "answer": answer.text or "",
            "finish_reason": finish_of(answer),
            "used": [asdict(each) for each in lowered.used],
            "usage": usage_of(answers),
        }
    )


def _owned(caller: Caller) -> Owned:
    def backend() -> Backend:
        """For all that the tenant will ask, so none of the relQuery of this request."""
        return caller.server.backend(caller.asker)

    return caller.server.kept(Registry).of(caller.asker.tenant, backend)


def _shown(schema: Schema, *, shared: bool) -> dict[str, object]:
    modules = [".".join(path) for path, _ in schema.modules()]
    return {"name": schema.name, "object": "schema", "shared": shared, "modules": modules}
