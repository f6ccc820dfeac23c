"""/v1/models"""

from __future__ import annotations

from fastapi import APIRouter, Request

from relquery.serve.asked import Caller
from relquery.serve.documented import errors
from relquery.serve.server import Server
from relquery.serve.wire.openai.types import ModelList, ModelObject

router = APIRouter(tags=["OpenAI"])


@router.get("/v1/models", responses=errors())
async def list_models(request: Request) -> ModelList:
    """All names by which the model can be called."""
    server = Caller(request).server
    return ModelList(data=[_shown(name, server) for name in server.models])


@router.get("/v1/models/{name:path}", responses=errors(404))
async def get_model(name: str, request: Request) -> ModelObject:
    """One model."""
    server = Caller(request).server
    server.check_model(name)
    return _shown(name, server)


def _shown(name: str, server: Server) -> ModelObject:
    return ModelObject(id=name, created=server.began, max_model_len=server.facts.context)
