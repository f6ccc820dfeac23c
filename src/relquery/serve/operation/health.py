"""/health: whether the server lives, and whether it takes requests."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse

from relquery.serve.server import Server

router = APIRouter(tags=["Operation"])


class Health(BaseModel):
    """status: "ok"; "starting" while the engine's process loads its model again; "stopping" once
    the server was told to stop."""

    status: Literal["ok", "starting", "stopping"]
    model: str


_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"model": Health, "description": "It takes no requests now"}
}


@router.get("/health/live", response_model=Health)
async def is_live(request: Request) -> JSONResponse:
    """200 as long as the server answers at all."""
    return JSONResponse(_health(request.state.server).model_dump())


@router.get("/health", response_model=Health, responses=_NOT_READY)
@router.get("/health/ready", response_model=Health, responses=_NOT_READY)
async def is_ready(request: Request) -> JSONResponse:
    """200 while the server takes requests, else 503."""
    found = _health(request.state.server)
    return JSONResponse(found.model_dump(), 200 if found.status == "ok" else 503)


def _health(server: Server) -> Health:
    status: Literal["ok", "starting", "stopping"] = "ok"
    if server.stopping or server.link.closed:
        status = "stopping"
    elif not server.link.ready:
        status = "starting"
    return Health(status=status, model=server.models[0])
