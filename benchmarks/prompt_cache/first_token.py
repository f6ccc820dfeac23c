"""Time to the first token of prompts whose modules are cached (paper 001, Fig. 3 to 5)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.harness import Say
from benchmarks.prompt_cache.sizes import Sizes
from benchmarks.spans.setup import Writer
from relquery.backends.base import Adopted
from relquery.backends.local.embedded import EmbeddedBackend, StoreOptions
from relquery.config import EngineConfig
from relquery.connection import Connection, connect
from relquery.markup.read.schema import Schema

if TYPE_CHECKING:
    from relquery.model.networks.load import LoadedModel

QUESTION = 30
"""Tokens that a prompt adds."""
SIDES = ("plain", "hit", "memory", "disk", "alone")
"""The text without modules; modules whose states are in the cache, in host memory, on disk; and a
prompt without modules."""


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Medians of the seconds to the first token by side. tokens: of the imported modules."""

    tokens: int
    seconds: Mapping[str, float]

    def gain(self, side: str) -> float:
        """How many times as long the plain text takes."""
        return self.seconds["plain"] / self.seconds[side]


def measure(
    model: LoadedModel, sizes: Sizes, seed: int, folder: Path, say: Say
) -> Iterator[FirstToken]:
    """A row for each length.

    Each prompt imports modules that follow one another in the schema, beginning with another one
    than any prompt before, so that no plain text begins like an earlier one.
    """
    writer = Writer(model, seed)
    most = max(sizes.lengths) // sizes.module
    starts = (sizes.rounds + 1) * len(sizes.lengths)
    modules = [
        f"<module name='m{number}'>{writer.document(sizes.module)}</module>"
        for number in range(starts + most)
    ]
    schema = Schema.parse(f"<schema name='s'>{''.join(modules)}</schema>")
    config = EngineConfig(cache_tokens=(len(modules) + 8) * (sizes.module + 8))
    with ExitStack() as stack:

        def opened(store: StoreOptions | None, *, plain: bool = False) -> Connection:
            backend = stack.enter_context(closing(EmbeddedBackend(model, config, store=store)))
            asked = Adopted(backend) if plain else backend
            connection = stack.enter_context(connect(asked, ledger=None))
            connection.register(schema, prepare=True)
            return connection

        plain = opened(None, plain=True)
        hit = opened(None)
        memory = opened(StoreOptions(None, 2**35, 0))
        disk = opened(StoreOptions(folder, 0, 2**40))
        connections = {"plain": plain, "hit": hit, "memory": memory, "disk": disk, "alone": hit}
        start = 0
        for length in sizes.lengths:
            found: dict[str, list[float]] = {side: [] for side in SIDES}
            for number in range(sizes.rounds + 1):  # the first warms up
                names = [f"m{start + at}" for at in range(length // sizes.module)]
                start += 1
                order = SIDES if number % 2 else SIDES[::-1]
                for side in order:
                    imports = "" if side == "alone" else "".join(f"<{name}/>" for name in names)
                    text = f"<prompt schema='s'>{imports}{writer.document(QUESTION)}</prompt>"
                    seconds = _timed(connections[side], text, evict=side in ("memory", "disk"))
                    found[side] += [seconds] if number else []
            row = FirstToken(length, {side: median(found[side]) for side in SIDES})
            say(str(row))
            yield row


def _timed(connection: Connection, text: str, *, evict: bool) -> float:
    """Seconds from the call to an answer of one token."""
    if evict:
        pool = connection.backend.engine.pool  # type: ignore[attr-defined]
        pool.evict(pool.total)
    begin = time.perf_counter()
    connection.prompt(text, max_tokens=1)
    return time.perf_counter() - begin


def large_schema(backend: EmbeddedBackend, sizes: Sizes, seed: int) -> tuple[float, float]:
    """Seconds to read and lay out a schema of many modules, the first time and then again."""
    writer = Writer(backend._model, seed)
    modules = [
        f"<module name='m{number}'>{writer.document(sizes.each)}</module>"
        for number in range(sizes.schema)
    ]
    text = f"<schema name='large'>{''.join(modules)}</schema>"
    return _ready(backend, text), _ready(backend, text)


def _ready(backend: EmbeddedBackend, text: str) -> float:
    with connect(backend, ledger=None) as connection:
        begin = time.perf_counter()
        connection.register(Schema.parse(text))
        connection.schemas.layout("large")
        return time.perf_counter() - begin
