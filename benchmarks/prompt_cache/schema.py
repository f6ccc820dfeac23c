"""Seconds until a large schema can be used."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass

from benchmarks.harness import Figure, Say, Settings
from benchmarks.parts import Part
from benchmarks.prompt_cache import first_token
from benchmarks.prompt_cache.sizes import FULL, QUERIES, Sizes, choose
from benchmarks.spans.setup import load_model
from benchmarks.templates import template

WORDS = template("prompt_cache")


@dataclass(slots=True)
class LargeSchema(Part):
    """A schema of many modules."""

    name = "schema"
    title = "A large schema"
    sizes: Sizes = FULL
    seconds: tuple[float, float] = (0.0, 0.0)

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        from relquery.backends.local.embedded import EmbeddedBackend
        from relquery.config import EngineConfig

        self.sizes = choose(settings.quick)
        model = load_model(self.sizes.models[0][1], QUERIES, settings.data)
        with closing(EmbeddedBackend(model, EngineConfig())) as backend:
            self.seconds = first_token.large_schema(backend, self.sizes, settings.seed)
        yield Figure("schema_seconds", self.seconds[0], 2.0, at_least=False, note="the first time")
        yield Figure("schema_seconds_again", self.seconds[1], 2.0, at_least=False)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("schema", schema=self.sizes.schema, each=self.sizes.each)
