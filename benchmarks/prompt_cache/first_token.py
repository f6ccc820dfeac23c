"""Time to the first token of prompts whose modules are cached (paper 001, Fig. 3 to 5)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from benchmarks.harness import Say
from benchmarks.prompt_cache.sizes import Sizes
from benchmarks.spans.setup import Writer
from relquery.backends.base import Adopted
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.sizing import StoreOptions
from relquery.config import EngineConfig
from relquery.connection import Connection, connect
from relquery.markup.layout import lay_out
from relquery.markup.schema import Schema
from relquery.markup.tokens import TokenizedTexts

if TYPE_CHECKING:
    from relquery.model.served import ServedModel

UNION = 100
"""Modules of a union in the large schema, which would otherwise be longer than any context."""
QUESTION = 30
"""Tokens that a prompt adds."""
SIDES = ("plain", "hit", "memory", "disk", "alone")
"""The text without modules; modules whose states are in the cache, in host memory, on disk; and a
prompt without modules."""


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Seconds to the first token by side. tokens: of the imported modules."""

    tokens: int
    seconds: Mapping[str, float]

    def gain(self, side: str) -> float:
        """How many times as long the plain text takes."""
        return self.seconds["plain"] / self.seconds[side]


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt: its schema, the modules that it imports, and what it adds."""

    schema: str
    modules: tuple[str, ...]
    added: str


def measure(
    model: ServedModel, sizes: Sizes, seed: int, folder: Path, say: Say
) -> Iterator[FirstToken]:
    """A row for each length.

    Each prompt imports modules that follow one another in the schema, beginning with another one
    than any prompt before, so that no plain text begins like an earlier one.
    """
    writer = Writer(model, seed)
    most = max(sizes.lengths) // sizes.module
    rounds = sizes.rounds + 1  # the first warms up
    starts = rounds * len(sizes.lengths)
    modules = [
        f"<module name='m{number}'>{writer.document(sizes.module)}</module>"
        for number in range(starts + most)
    ]
    schema = Schema.parse(f"<schema name='s'>{''.join(modules)}</schema>")
    cases = [
        Case(
            "s",
            tuple(
                f"m{start + index}"
                for index in range(sizes.lengths[start // rounds] // sizes.module)
            ),
            writer.document(QUESTION),
        )
        for start in range(starts)
    ]
    timed = measure_cases(model, [schema], cases, SIDES, folder)
    for length in sizes.lengths:
        rounds_timed = list(islice(timed, rounds))[1:]
        seconds = {side: median(each.seconds[side] for each in rounds_timed) for side in SIDES}
        yield FirstToken(length, seconds)
        say(f"{length}: {seconds}")


def measure_cases(
    model: ServedModel,
    schemas: Sequence[Schema],
    cases: Sequence[Case],
    sides: Sequence[str],
    folder: Path | None = None,
) -> Iterator[FirstToken]:
    """The time of each prompt by side, of which they take turns. folder: of states on disk."""
    modules = sum(1 for schema in schemas for _ in schema.modules())
    tokens = sum(_tokens(model, schema) for schema in schemas)
    with ExitStack() as stack:

        def opened(store: StoreOptions | None, *, plain: bool = False) -> Connection:
            backend = stack.enter_context(closing(EmbeddedBackend(model, config, store=store)))
            asked = Adopted(backend) if plain else backend
            connection = stack.enter_context(connect(asked, form="json", ledger=None))
            for schema in schemas:
                connection.register(schema, prepare=True)
            return connection

        config = EngineConfig(cache_tokens=2 * tokens + 32 * modules + 4_096)
        connections = {
            "plain": opened(None, plain=True),
            "hit": opened(None),
            "memory": opened(StoreOptions(None, 2**35, 0)) if "memory" in sides else None,
            "disk": opened(StoreOptions(folder, 0, 2**40)) if "disk" in sides else None,
        }
        connections["alone"] = connections["hit"]
        for number, case in enumerate(cases):
            seconds = {}
            for side in sides if number % 2 else sides[::-1]:
                names = () if side == "alone" else case.modules
                imports = "".join(f"<{name}/>" for name in names)
                text = f"<prompt schema='{case.schema}'>{imports}{escape(case.added)}</prompt>"
                connection = connections[side]
                assert connection is not None
                seconds[side] = _timed(connection, text, evict=side in ("memory", "disk"))
            yield FirstToken(_imported(connections["hit"], case), seconds)


def _tokens(model: ServedModel, schema: Schema) -> int:
    """Of all modules."""
    with closing(EmbeddedBackend(model, EngineConfig(cache_tokens=4_096))) as backend:
        layout = lay_out(schema, TokenizedTexts(backend))
    return sum(laid.tokens for laid in layout.all())


def _imported(connection: Connection | None, case: Case) -> int:
    """Tokens of the modules of a prompt."""
    assert connection is not None
    layout = connection.schemas.layout(case.schema)
    return sum(layout.modules[name].tokens for name in case.modules)


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
    writer = Writer(backend.model, seed)
    modules = [
        f"<module name='m{number}'>{writer.document(sizes.each)}</module>"
        for number in range(sizes.schema)
    ]
    unions = [
        f"<union>{''.join(modules[start : start + UNION])}</union>"
        for start in range(0, len(modules), UNION)
    ]
    text = f"<schema name='large'>{''.join(unions)}</schema>"
    return _ready(backend, text), _ready(backend, text)


def _ready(backend: EmbeddedBackend, text: str) -> float:
    with connect(backend, form="json", ledger=None) as connection:
        begin = time.perf_counter()
        connection.register(Schema.parse(text))
        connection.schemas.layout("large")
        return time.perf_counter() - begin
