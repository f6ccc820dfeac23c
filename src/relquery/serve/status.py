"""/health: whether the server lives and takes requests. /metrics: its figures for Prometheus."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel
from starlette.responses import JSONResponse, PlainTextResponse, Response

from relquery.backends.service.state import EngineState
from relquery.serve.document import errors
from relquery.serve.errors import HttpError
from relquery.serve.server import Scope, Server

router = APIRouter(tags=["Operation"])
PATIENCE = 2.0
"""Seconds that the engine has to tell its state: it does so between two steps."""


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
    if server.admission.stopping or any(each.link.closed for each in server.engines):
        status = "stopping"
    elif not server.is_ready:
        status = "starting"
    return Health(status=status, model=server.models[0])


@router.get("/metrics", response_class=PlainTextResponse, responses=errors(403))
async def show_metrics(scope: Scope) -> Response:
    """Figures of all tenants in Prometheus' text form."""
    server = scope.server
    if not scope.identity.operator:
        raise HttpError(
            403, "Metrics are for keys made with `relquery keys add --operator`.", "no_operator"
        )
    state, opened = await _state(server), server.admission.open
    starts = sum(each.link.starts - 1 for each in server.engines)
    page = server.metrics.page(opened, server.serving, state, starts)
    return Response(page, media_type=CONTENT_TYPE_PLAIN_0_0_4)


async def _state(server: Server) -> EngineState | None:
    """The engine's state without forecasts; None where it does not tell in time."""
    if not server.is_ready:
        return None
    try:
        return await asyncio.wait_for(server.state(0), PATIENCE)
    except Exception:
        return None
