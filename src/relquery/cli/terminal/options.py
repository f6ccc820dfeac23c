"""Options that several commands have."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

ENGINE_PANEL = "Engine"
CacheTokens = Annotated[int | None, typer.Option(help="Capacity of the KV cache in tokens.")]
Cost = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE.json",
        help="What steps cost (`relquery calibrate`), needed to estimate seconds.",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="What is computed in: float32, bfloat16, float16, or int8 for weights in 4 or 8 bits.",
        rich_help_panel=ENGINE_PANEL,
    ),
]
Quantize = Annotated[
    str | None,
    typer.Option(
        help="int8 or int4: round weights to so many bits when they are loaded.",
        rich_help_panel=ENGINE_PANEL,
    ),
]
KvCacheDtype = Annotated[
    str | None,
    typer.Option(
        help="int8: keep keys and values in 8 bits, so that the cache holds more tokens.",
        rich_help_panel=ENGINE_PANEL,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def command_of(options: type[Any]) -> Callable[..., None]:
    """A command whose arguments and options are the fields of a dataclass, which it then calls."""

    def run(**given: Any) -> None:
        options(**given)()

    hints, shape = get_type_hints(options, include_extras=True), inspect.signature(options)
    parameters = [one.replace(annotation=hints[one.name]) for one in shape.parameters.values()]
    run.__signature__ = shape.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__doc__ = options.__doc__
    return run
