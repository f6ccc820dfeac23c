"""`python -m benchmarks.standin`: the stand-in on a port, until it is stopped."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Annotated

import typer

from benchmarks.standin.http import address, listen
from benchmarks.standin.limits import Limits
from benchmarks.standin.provider import Provider


def main(
    port: Annotated[int, typer.Option(help="0 for any that is free.")] = 0,
    seconds: Annotated[float, typer.Option(help="Until an answer ends.")] = 0.05,
    rpm: Annotated[float, typer.Option(help="Requests a minute.")] = inf,
    tpm: Annotated[float, typer.Option(help="Tokens a minute.")] = inf,
) -> None:
    """Serve OpenAI's, Google's and Anthropic's forms; prints the address."""

    async def serve() -> None:
        provider = Provider(limits=Limits(rpm, tpm), begins=seconds, ends=seconds)
        server = await listen(provider.handle, port)
        print(address(server), flush=True)
        await server.serve_forever()

    asyncio.run(serve())


if __name__ == "__main__":
    typer.run(main)
