"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

CacheTokens = Annotated[int | None, typer.Option(help="Capacity of the KV cache in tokens.")]
Cost = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE.json",
        help="What steps cost (`relquery calibrate`), needed to estimate seconds.",
    ),
]
