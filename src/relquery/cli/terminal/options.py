"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

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
