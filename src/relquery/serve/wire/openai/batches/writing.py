"""Work on the disk that is not left half-way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def to_its_end(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function in a thread. Who is cancelled meanwhile goes on when the thread has ended,
    so that what follows does not write beside it."""
    thread = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    cancelled: asyncio.CancelledError | None = None
    while not thread.done():
        try:
            await asyncio.wait([thread])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        thread.exception()  # nobody else asks for it
        raise cancelled
    return thread.result()
